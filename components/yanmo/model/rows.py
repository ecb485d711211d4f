"""Rows one behind the other, without padding: how texts are scored on a CPU.

Rows of equal length share a call of attention, and causality comes from its kernel and not from a mask. A row
may go on from another, which several begin with (a question and its answers): that one is read once.

    N = positions of all rows, B = rows of equal length, T = positions in each, H = query heads,
    K = key/value heads, E = head width
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class _Run(NamedTuple):
    """Neighbours of equal length that go on from the same row."""

    first: int
    """The first one's first position among all."""
    B: int
    T: int
    head: int = 0
    """The first position of the row that they go on from."""
    past: int = 0
    """Positions of that row; 0 where there is none."""
    mask: Tensor | None = None
    """Which of those and of their own positions each one sees: (T, past + T), bool."""


class Rows:
    """A `Layout` (decoder.py) of some rows, each of one document."""

    def __init__(self, lengths: Sequence[int], behind: Sequence[int] = ()) -> None:
        """Lay out rows.

        Args:
            lengths: positions in each row, at most the model's context; neighbours of equal length are
                read together.
            behind: for each row, the index of an earlier row that it goes on from, or -1; that one goes on
                from none.
        """
        self._runs = _runs(lengths, behind or [-1] * len(lengths))
        parts = [torch.arange(run.past, run.past + run.T).repeat(run.B) for run in self._runs]
        self.positions = torch.cat(parts)
        """(N,)"""

    def attend(self, q_NHE: Tensor, k_NKE: Tensor, v_NKE: Tensor) -> Tensor:
        """Return the mixed values: (N, H, E)."""
        shares, found = q_NHE.shape[1] != k_NKE.shape[1], []
        for run in self._runs:
            rows = slice(run.first, run.first + run.B * run.T)
            q, k, v = (
                x[rows].view(run.B, run.T, *x.shape[1:]).transpose(1, 2) for x in (q_NHE, k_NKE, v_NKE)
            )
            if run.past:
                head = slice(run.head, run.head + run.past)
                k, v = (
                    torch.cat([x[head].transpose(0, 1).expand(run.B, -1, -1, -1), own], 2)
                    for x, own in ((k_NKE, k), (v_NKE, v))
                )
            mixed = F.scaled_dot_product_attention(
                q, k, v, attn_mask=run.mask, is_causal=run.mask is None, enable_gqa=shares
            )
            found.append(mixed.transpose(1, 2).flatten(0, 1))
        return torch.cat(found)


def _runs(lengths: Sequence[int], behind: Sequence[int]) -> list[_Run]:
    starts = [0, *itertools.accumulate(lengths)]
    found, row = [], 0
    for (T, head), rows in itertools.groupby(zip(lengths, behind, strict=True)):
        B = len(list(rows))
        if head < 0:
            found.append(_Run(starts[row], B, T))
        else:
            past = lengths[head]
            mask = torch.ones(T, past + T, dtype=torch.bool).tril(past)
            found.append(_Run(starts[row], B, T, starts[head], past, mask))
        row += B
    return found
