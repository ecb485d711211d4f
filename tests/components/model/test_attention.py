"""The plain path against float64 arithmetic, and documents kept apart."""

import logging
import re

import pytest
import torch
import torch.nn.attention.varlen
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from yanmo.common.errors import EnvironmentFault
from yanmo.model.attention import (
    attend,
    best_path,
    choose_path,
    document_bounds,
    documents,
    path_name,
    varlen_kernel,
)


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


def test_bounds_made_on_the_host_equal_those_made_on_the_device():
    for segments in (SEGMENTS, SEGMENTS[:1], SEGMENTS[:, :4], torch.ones(3, 7), torch.arange(8)[None]):
        bounds = documents(segments, torch.bfloat16, "varlen").bounds
        assert document_bounds(segments.numpy()).tolist() == bounds.tolist()
        given = documents(segments, torch.bfloat16, "varlen", bounds)
        assert given.bounds is bounds and bounds.dtype == torch.int32


def test_positions_restart_with_each_document_even_if_its_number_came_before():
    positions = documents(SEGMENTS, torch.float32).positions
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0, 0, 1], [0, 1, 0, 0, 1, 2, 3, 0]]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_flash_without_a_mask_equals_float64_arithmetic_where_rows_hold_one_document(dtype, tolerance):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 8, heads, 16).to(dtype) for heads in (4, 2, 2))
    padded = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    found = attend(q, k, v, documents(padded, dtype, "flash")).double()
    wrong = (found - by_hand(q, k, v, padded)).abs()
    assert wrong[padded > 0].max() < tolerance, "what padding itself reads does not count"


@pytest.mark.parametrize("path", ["masked", "flash"])
def test_gradients_equal_float64_arithmetic(path):
    torch.manual_seed(0)
    tensors = [torch.randn(1, 6, heads, 8, requires_grad=True) for heads in (2, 1, 1)]
    one = torch.ones(1, 6, dtype=torch.long)
    attend(*tensors, documents(one, torch.float32, path)).square().sum().backward()
    exact = [x.detach().double().requires_grad_() for x in tensors]
    q, k, v = exact
    scores = torch.einsum("bthe,bske->bhts", q, k.expand(-1, -1, 1, -1)) / 8**0.5
    scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf).softmax(-1)
    torch.einsum("bhts,bske->bthe", scores, v).square().sum().backward()
    for ours, theirs in zip(tensors, exact, strict=True):
        assert (ours.grad - theirs.grad).abs().max() < 1e-5


def test_a_cpu_has_no_varlen_path_and_asking_for_it_is_an_error():
    assert varlen_kernel("cpu", torch.bfloat16) is None
    assert best_path("cpu", torch.float32, 64, None) == "masked"
    assert choose_path("auto", "cpu", torch.float32, True, 64, None) == "flash"
    assert path_name(choose_path("auto", "cpu", torch.float32, False, 64, None)) == "sdpa-block-causal"
    with pytest.raises(EnvironmentFault, match=r"--attention varlen.*CUDA"):
        choose_path("varlen", "cpu", torch.bfloat16, False, 64, None)


CARDS = {"V100": (7, 0), "T4": (7, 5), "A100": (8, 0), "RTX 3090": (8, 6), "RTX 4090": (8, 9), "H200": (9, 0)}


@settings(deadline=None)
@given(
    card=st.sampled_from([*CARDS.values(), (10, 0), (12, 0)]),
    width=st.integers(1, 160).map(lambda n: 2 * n),
    dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
    one=st.booleans(),
)
def test_varlen_is_taken_exactly_where_card_width_and_dtype_fit(card, width, dtype, one):
    # The limits written once more, as torch's sdp_utils.cpp has them; see flash_limits.py.
    widest = 192 if card in ((8, 6), (8, 9), (12, 0)) else 256
    fits = card >= (8, 0) and dtype != torch.float32 and width % 8 == 0 and width <= widest
    has_cudnn = card in ((9, 0), (10, 0)) and dtype != torch.float32 and width % 8 == 0 and width <= 128
    found = choose_path("auto", "cuda", dtype, one, width, card)
    assert found == ("varlen" if fits and not (one and has_cudnn) else "flash" if one else "masked")
    assert best_path("cuda", dtype, width, card) == ("varlen" if fits else "masked")
    if fits:
        assert choose_path("varlen", "cuda", dtype, one, width, card) == "varlen"
    else:
        instead = "flash" if one else "masked"
        with pytest.raises(EnvironmentFault, match=rf"--attention varlen: .* give --attention {instead}"):
            choose_path("varlen", "cuda", dtype, one, width, card)


@pytest.mark.parametrize(
    ("card", "width", "dtype", "reason"),
    [
        ((7, 5), 64, torch.bfloat16, "8.0 or more .* has 7.5"),
        ((9, 0), 36, torch.bfloat16, "--head-width. is 36"),
        ((8, 9), 256, torch.bfloat16, "on compute capability 8.9 it needs a head width of at most 192"),
        ((9, 0), 64, torch.float32, "the precision is fp32"),
    ],
)
def test_the_log_says_why_a_card_does_not_get_varlen(card, width, dtype, reason, caplog):
    with caplog.at_level(logging.INFO):
        choose_path("auto", "cuda", dtype, False, width, card)
    assert re.search(f"attention=sdpa-block-causal, not varlen: .*{reason}", caplog.text)


def test_keys_that_query_heads_share_are_not_copied_for_varlen():
    # Nothing is computed: torch follows shapes and devices, and no GPU is needed.
    with FakeTensorMode(), torch.device("cuda"):
        q, k, v = (
            torch.randn(2, 8, heads, 64, dtype=torch.bfloat16, requires_grad=True) for heads in (4, 2, 2)
        )
        segments, bounds = torch.ones(2, 8, dtype=torch.long), torch.zeros(4, dtype=torch.int32)
        out = attend(q, k, v, documents(segments, torch.bfloat16, "varlen", bounds))
        assert (out.shape, out.dtype, out.device.type) == (q.shape, torch.bfloat16, "cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_flash_path_equals_float64_arithmetic():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 8, heads, 64).to(torch.bfloat16) for heads in (4, 2, 2))
    layout = documents(SEGMENTS.cuda(), torch.bfloat16)
    found = attend(q.cuda(), k.cuda(), v.cuda(), layout).double().cpu()
    assert (found - by_hand(q, k, v, SEGMENTS)).abs().max() < 2e-2
