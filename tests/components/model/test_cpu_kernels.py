"""Our RMSNorm and attention of a CPU against torch's in float64: values and gradients."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.model.attention import attend, documents
from yanmo.model.cpu_kernels import RMSNorm, one_head_attention, suits_one_head

sizes = st.integers(1, 9)


def drawn(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_gradients(compute, inputs, d_out):
    """The result of `compute` and the gradients of its inputs."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = compute(*leaves)
    out.backward(d_out)
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def assert_close(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == torch.float32 and a.shape == b.shape
        assert (a.double() - b).norm() <= 2e-6 * b.norm() + 1e-6


@given(st.lists(sizes, min_size=1, max_size=3), st.integers(2, 80), st.floats(-4, 4), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_rms_norm_and_its_gradients_are_torchs(rows, width, power, seed):
    x, weight = drawn((*rows, width), seed) * 10**power, drawn(width, seed + 1)
    d_out = drawn(x.shape, seed + 2)
    norm = RMSNorm(width, 1e-6)

    def ours(x, weight):
        return torch.func.functional_call(norm, {"weight": weight}, (x,))

    theirs = with_gradients(lambda x, w: F.rms_norm(x, (width,), w, 1e-6), (x, weight), d_out)
    assert_close(with_gradients(ours, (x.float(), weight.float()), d_out.float()), theirs)


def test_rms_norm_of_frozen_weights_and_of_16_bits():
    norm = RMSNorm(8, 1e-6)
    norm.weight.requires_grad_(False)
    x = torch.randn(3, 8, requires_grad=True)
    norm(x).sum().backward()
    assert x.grad is not None and norm.weight.grad is None
    half = torch.randn(3, 8, dtype=torch.bfloat16)
    assert torch.equal(norm.bfloat16()(half), F.rms_norm(half, (8,), norm.weight, 1e-6))


@given(st.data(), st.integers(1, 3), st.integers(1, 64), st.integers(1, 4), st.sampled_from([2, 4, 16, 64]))
@settings(max_examples=40, deadline=None)
def test_attention_of_one_key_head_and_its_gradients_are_torchs(data, B, T, H, E):
    segments = torch.tensor([sorted(data.draw(st.lists(sizes, min_size=T, max_size=T))) for _ in range(B)])
    layout = documents(segments, torch.float64, "masked")
    q, k, v = drawn((B, T, H, E), 0), drawn((B, T, 1, E), 1), drawn((B, T, 1, E), 2)
    assert not suits_one_head(q, k)  # float64: torch's attention
    theirs = with_gradients(lambda *qkv: attend(*qkv, layout), (q, k, v), drawn(q.shape, 3))
    mask = layout.mask_B1TT.float()
    floats = tuple(x.float() for x in (q, k, v))
    assert suits_one_head(*floats[:2])
    ours = with_gradients(lambda *qkv: one_head_attention(*qkv, mask), floats, drawn(q.shape, 3).float())
    assert_close(ours, theirs)


def test_longer_rows_and_more_key_heads_are_left_to_torch():
    q, k = torch.zeros(1, 65, 4, 8), torch.zeros(1, 65, 1, 8)
    assert not suits_one_head(q, k)
    assert not suits_one_head(q[:, :64], torch.zeros(1, 64, 2, 8))
    assert suits_one_head(q[:, :64], k[:, :64])
