"""Every path of attention on the device against float64 arithmetic, forward and gradients.

Cases are drawn: head widths, grouped heads, odd lengths, rows of many documents, of one, of single tokens,
padded ones. An error is the norm of the difference by that of the exact result.

    B = rows, T = positions, H = query heads, K = key/value heads, E = head width
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from gpu_report import Measure, holds, skipped, within
from torch import Tensor

from yanmo.model.attention import (
    attend,
    best_path,
    document_bounds,
    documents,
    lowest_capability,
    varlen_problem,
)

_TOLERANCES = {
    torch.bfloat16: (1e-2, "bf16 keeps 8 bits: inputs exact, products and results rounded by 2^-9 each"),
    torch.float32: (5e-5, "fp32 keeps 24 bits; sums over up to 2,048 positions, TF32 off"),
}


class Case(NamedTuple):
    """Shapes and layout of a batch."""

    rows: str
    B: int
    T: int
    H: int
    K: int
    E: int
    seed: int


def cases(quick: bool, widths: tuple[int, ...] = (64, 128)) -> list[Case]:
    """Every kind of row with every width and grouping, at lengths that are no round numbers."""
    draw = np.random.default_rng(14)
    lengths = (7, 33) if quick else (1, 33, 129, 511, 1024, 2047)
    kinds = ("documents", "one", "singles", "padded", "short")
    found = []
    for number, (rows, E, (H, K)) in enumerate(
        (rows, E, heads) for rows in kinds for E in widths for heads in ((4, 4), (6, 2), (8, 1))
    ):
        T = int(draw.choice(lengths))
        found.append(Case(rows, int(draw.integers(1, 4)), T, H, K, E, number))
    return found


def segments(case: Case) -> Tensor:
    """Numbers of documents at each position; 0 is padding."""
    draw = np.random.default_rng(case.seed)
    B, T = case.B, case.T
    if case.rows == "one":
        return torch.ones(B, T, dtype=torch.long)
    if case.rows == "singles":
        return torch.arange(1, T + 1).repeat(B, 1)
    starts = draw.random((B, T)) < (0 if case.rows == "short" else max(3 / T, 0.02))
    found = torch.from_numpy(np.cumsum(starts, 1) + 1)
    if case.rows in ("padded", "short"):
        for row in found:
            row[int(draw.integers(T // 2, T)) + 1 :] = 0
    return found


def exact(q: Tensor, k: Tensor, v: Tensor, segments_BT: Tensor) -> Tensor:
    """Softmax attention in float64 over runs of equal numbers; nothing of the product is used."""
    groups, T = q.shape[2] // k.shape[2], q.shape[1]
    k, v = k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)
    run = torch.zeros_like(segments_BT)
    run[:, 1:] = (segments_BT[:, 1:] != segments_BT[:, :-1]).cumsum(1)
    seen = (run[:, :, None] == run[:, None, :]) & torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
    scores = torch.einsum("bthe,bshe->bhts", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhts,bshe->bthe", scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1), v)


def errors(case: Case, path: str, device: str, dtype: torch.dtype) -> list[float]:
    """Of output and gradients, relative."""
    draw = torch.Generator().manual_seed(case.seed)
    shapes = [(case.B, case.T, heads, case.E) for heads in (case.H, case.K, case.K, case.H)]
    q, k, v, up = (torch.randn(shape, generator=draw).to(device, dtype) for shape in shapes)
    rows = segments(case)
    bounds = torch.from_numpy(document_bounds(rows.numpy())).to(device) if path == "varlen" else None
    layout = documents(rows.to(device), dtype, path, bounds)
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    out = attend(*ours, layout)
    theirs = [x.double().requires_grad_() for x in (q, k, v)]
    right = exact(*theirs, rows.to(device))
    real = (rows > 0).to(device)[..., None, None]
    if path == "flash":  # there padding reads the row before it, and has no target
        up = up * real
        out, right = out * real, right * real
    out.backward(up)
    right.backward(up.double())
    pairs = [(out, right), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]
    # A gradient that is exactly 0 (a document of one token) is measured by what flows in.
    floor = 0.05 * float(up.double().norm())
    found = []
    for a, b in pairs:
        assert a is not None and b is not None
        a, b = a.detach().double(), b.detach()
        found.append(float((a - b).norm()) / max(float(b.norm()), floor))
    return found


def worst(chosen: list[Case], path: str, device: str, dtype: torch.dtype) -> tuple[float, str]:
    """The largest error, and where; NaN where one is."""
    found = [(max(errors(c, path, device, dtype), key=lambda e: (e != e, e)), c) for c in chosen]
    error, c = max(found, key=lambda pair: (pair[0] != pair[0], pair[0]))
    return error, f"{c.rows}, {c.B} x {c.T}, {c.H}/{c.K} heads of {c.E}"


def attention(setting: Any) -> Iterator[Measure]:
    """All paths and dtypes; documents kept apart; what is chosen for widths that flash does not take."""
    device = setting.device
    torch.set_float32_matmul_precision("highest")
    chosen = cases(setting.quick)
    one = [case for case in chosen if case.rows in ("one", "short")]
    masked = 0.0
    for path, dtype, those in (
        ("masked", torch.float32, chosen),
        ("masked", torch.bfloat16, chosen),
        ("flash", torch.float32, one),
        ("flash", torch.bfloat16, one),
    ):
        error, at = worst(those, path, device, dtype)
        masked = error if (path, dtype) == ("masked", torch.bfloat16) else masked
        tolerance, reason = _TOLERANCES[dtype]
        yield within(f"{path}, {_short(dtype)}", error, tolerance, f"{reason}; worst at {at}")
    problem = varlen_problem(device, torch.bfloat16, 64, lowest_capability() if device == "cuda" else None)
    if problem:
        yield skipped("varlen", problem)
        return
    error, at = worst(chosen, "varlen", device, torch.bfloat16)
    tolerance, reason = _TOLERANCES[torch.bfloat16]
    yield within("varlen, bf16", error, tolerance, f"{reason}; worst at {at}")
    yield within("varlen beside masked", error, 2 * masked + 1e-3, "twice the masked path's own error")
    yield _leak(device)
    yield from _widths(device)


def _short(dtype: torch.dtype) -> str:
    return "bf16" if dtype == torch.bfloat16 else "fp32"


def _leak(device: str) -> Measure:
    """What a document gives must not change by a bit with what lies beside it."""
    torch.manual_seed(0)
    rows = torch.tensor([[1] * 70 + [2] * 53 + [3] * 130])
    bounds = torch.from_numpy(document_bounds(rows.numpy())).to(device)
    layout = documents(rows.to(device), torch.bfloat16, "varlen", bounds)
    q, k, v = (torch.randn(1, 253, heads, 64).to(device, torch.bfloat16) for heads in (4, 2, 2))
    first = attend(q, k, v, layout)
    at = rows[0] != 2
    for x in (q, k, v):
        x[:, ~at] = torch.randn_like(x[:, ~at]) * 50
    difference = float((attend(q, k, v, layout)[:, at] - first[:, at]).abs().max())
    return within("varlen, a neighbour's leak", difference, 0.0, "other documents are not read at all")


def _widths(device: str) -> Iterator[Measure]:
    """Widths at the edges: run where flash takes them, masked where it does not; never a crash."""
    capability = lowest_capability()
    for E in (8, 36, 40, 192, 256, 264):
        path = best_path(device, torch.bfloat16, E, capability)
        case = Case("documents", 2, 129, 4, 2, E, E)
        error = max(errors(case, path, device, torch.bfloat16))
        yield within(f"heads of {E}: {path}", error, *_TOLERANCES[torch.bfloat16])
    path = best_path(device, torch.float32, 64, capability)
    yield holds(f"auto in fp32 is {path}", path == "masked", "flash attention has 16 bits only")
