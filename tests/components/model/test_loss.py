"""The fused loss against F.cross_entropy."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from yanmo.model.flash_limits import rows_at_once
from yanmo.model.frequent_loss import Apart, frequent_cross_entropy
from yanmo.model.loss import linear_cross_entropy, to_compile


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_loss_and_gradients_equal_cross_entropy(dtype, tolerance):
    # 600 rows: two full chunks and a rest. bf16's tolerance is relative to the largest gradient.
    torch.manual_seed(0)
    hidden, weight = torch.randn(600, 24), torch.randn(70, 24)
    targets = torch.randint(0, 70, (600,))
    h, w = (x.to(dtype).requires_grad_() for x in (hidden, weight))
    loss = linear_cross_entropy(h, w, targets, 1 / 600)
    (loss * 0.5).backward()
    h2, w2 = (x.detach().double().requires_grad_() for x in (h, w))
    expected = F.cross_entropy(h2 @ w2.T, targets)
    (expected * 0.5).backward()
    assert loss.dtype == torch.float32
    assert abs(loss.item() - expected.item()) < tolerance
    for ours, theirs in ((h.grad, h2.grad), (w.grad, w2.grad)):
        assert (ours.double() - theirs).abs().max() < tolerance * theirs.abs().max()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_what_a_gpu_compiles_is_the_same_loss_and_gradient(dtype, tolerance):
    torch.manual_seed(0)
    hidden, weight = (torch.randn(n, 24).to(dtype) for n in (300, 70))
    targets = torch.randint(0, 70, (300,))
    nats, gradient = to_compile(hidden, weight, targets[:, None])
    logits = (hidden @ weight.T).double().requires_grad_()
    expected = F.cross_entropy(logits, targets, reduction="sum")
    expected.backward()
    assert nats.dtype == torch.float32 and gradient.dtype == dtype
    assert abs(nats.item() - expected.item()) < tolerance * expected.item()
    assert (gradient.double() - logits.grad).abs().max() < tolerance


def test_a_lost_target_costs_its_whole_price_there_too():
    hidden, weight = torch.ones(3, 1), torch.tensor([[0.0], [200.0], [100.0]])
    nats, _ = to_compile(hidden, weight, torch.tensor([[0], [1], [2]]))
    assert abs(nats.item() - 300.0) < 1e-3


def test_the_scale_makes_shares_of_a_global_mean_add_up():
    torch.manual_seed(0)
    hidden, weight, targets = torch.randn(300, 8), torch.randn(20, 8), torch.randint(0, 20, (300,))
    whole = linear_cross_entropy(hidden, weight, targets, 1 / 300)
    parts = sum(
        linear_cross_entropy(hidden[s], weight, targets[s], 1 / 300) for s in (slice(0, 17), slice(17, 300))
    )
    assert abs(whole.item() - parts.item()) < 1e-6
    assert not whole.requires_grad


def test_a_target_with_no_probability_left_in_fp32_costs_its_whole_price():
    hidden, weight = torch.ones(3, 1), torch.tensor([[0.0], [200.0], [100.0]])
    loss = linear_cross_entropy(hidden, weight, torch.tensor([0, 1, 2]), 1.0)
    assert abs(loss.item() - 300.0) < 1e-3


class Products(TorchDispatchMode):
    """Counts matrix products."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += func.overloadpacket.__name__ in ("mm", "addmm", "addmm_")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("frequent", "chunks"), [(0, 4), (2048, 1 + 1)])
def test_on_cuda_a_product_has_thousands_of_rows(frequent, chunks):
    # Nothing is computed: torch follows shapes and devices, and no GPU is needed. What had to wait for one
    # would raise.
    N, V = 16_384, 8192
    with FakeTensorMode(), torch.device("cuda"), Products() as products:
        hidden, weight = (torch.randn(n, 64, dtype=torch.bfloat16).requires_grad_() for n in (N, V))
        targets = torch.zeros(N, dtype=torch.long)
        if frequent:
            whole = torch.arange(1024)
            near, drawn = torch.arange(N - 1024), torch.ones(1024, dtype=torch.bool)
            apart = Apart(torch.arange(V), near, whole, drawn, frequent, 0.1)
            loss = frequent_cross_entropy(hidden, weight, targets, 1.0, apart)
        else:
            loss = linear_cross_entropy(hidden, weight, targets, 1.0)
    assert loss.device.type == "cuda"
    assert products.number == 3 * chunks, "logits and two gradients of each"


def test_elsewhere_they_stay_in_a_cache_and_a_large_vocabulary_in_memory():
    assert {rows_at_once(8192, device) for device in ("cpu", "mps")} == {256}
    assert rows_at_once(8192, "cuda") == 4096 and rows_at_once(2048, "cpu", 1 << 22) == 2048
    assert rows_at_once(151_936, "cuda") == 256, "156 MB in fp32"
