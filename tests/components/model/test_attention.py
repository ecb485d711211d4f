"""The plain path against float64 arithmetic, and documents kept apart."""

import pytest
import torch

from yanmo.model.attention import attend, documents, path_name, varlen_path


def by_hand(q, k, v, segments):
    """Softmax attention in float64, position by position, over the position's own run."""
    out = torch.zeros_like(q, dtype=torch.float64)
    B, T, H, E = q.shape
    for b in range(B):
        for t in range(T):
            start = t
            while start and segments[b, start - 1] == segments[b, t]:
                start -= 1
            for h in range(H):
                j = h * k.shape[2] // H
                scores = k[b, start : t + 1, j].double() @ q[b, t, h].double() / E**0.5
                out[b, t, h] = scores.softmax(0) @ v[b, start : t + 1, j].double()
    return out


SEGMENTS = torch.tensor([[1, 1, 1, 2, 2, 3, 0, 0], [5, 5, 6, 5, 5, 5, 5, 9]])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_attention_equals_float64_arithmetic_over_each_document(dtype, tolerance):
    # bf16 keeps 8 bits of mantissa: 2e-2 on values of about 1.
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 8, heads, 16).to(dtype) for heads in (4, 2, 2))
    found = attend(q, k, v, documents(SEGMENTS, dtype)).double()
    assert (found - by_hand(q, k, v, SEGMENTS)).abs().max() < tolerance


def test_positions_restart_with_each_document_even_if_its_number_came_before():
    positions = documents(SEGMENTS, torch.float32).positions_BT
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0, 0, 1], [0, 1, 0, 0, 1, 2, 3, 0]]


def test_a_cpu_takes_the_plain_path():
    assert varlen_path("cpu", torch.bfloat16) is None
    assert path_name("cpu", torch.float32) == "sdpa-block-causal"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_flash_path_equals_float64_arithmetic():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 8, heads, 64).to(torch.bfloat16) for heads in (4, 2, 2))
    layout = documents(SEGMENTS.cuda(), torch.bfloat16)
    found = attend(q.cuda(), k.cuda(), v.cuda(), layout).double().cpu()
    assert (found - by_hand(q, k, v, SEGMENTS)).abs().max() < 2e-2
