"""The fused loss against F.cross_entropy."""

import pytest
import torch
import torch.nn.functional as F

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
