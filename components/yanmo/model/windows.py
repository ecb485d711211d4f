"""Which parts of documents are read together: windows over long ones, batches of windows.

A document longer than the context is read through windows that advance by a stride, half a context by
default: each token is scored once, by the first window that reaches it, with at least `context - stride`
tokens before it (near the beginning, all that there are). Where a window begins depends on the position
alone, never on later tokens, so the bits are those of a proper distribution over texts: the probabilities of
all texts sum to 1 (tests/components/model/test_scoring_exact.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.integer]
Counted = NDArray[np.bool_]
_LEAST_HEAD = 8
"""Tokens; a shorter head is not worth the mask that attention behind it needs."""


@dataclass(frozen=True)
class Window:
    """A part of a document that the model reads at once."""

    document: int
    """Index of the document."""
    start: int
    """First token that the window reads."""
    length: int
    """Tokens that it reads."""
    scored: int
    """First token that it scores; it scores all from there to `start + length`, inclusive."""

    head: int = 0
    """Tokens at its beginning that others of its batch begin with too; none of them is before a counted
    one."""

    @property
    def targets(self) -> slice:
        """Return where the bits of its scored tokens stand among the document's bits."""
        return slice(self.scored - 1, self.start + self.length)


def windows_of(document: int, length: int, context: int, stride: int = 0) -> list[Window]:
    """Return the windows over a document of `length` tokens; the last token is a target and never an input.

    Raises:
        ValueError: the stride is longer than the context, so that some tokens would be left out.
    """
    stride = stride or context - context // 2
    if not 1 <= stride <= context:
        raise ValueError(f"stride {stride}: expected 1 to {context} tokens, the context of the model")
    found, scored = [], 1
    while scored < length:
        start = 0 if scored == 1 else scored - 1 - (context - stride)
        read = min(context, length - 1 - start)
        found.append(Window(document, start, read, scored))
        scored = start + read + 1
    return found


def plan_batches(
    lengths: Sequence[int],
    context: int,
    stride: int = 0,
    batch_tokens: int = 1024,
    counted: Sequence[Counted] | None = None,
) -> list[list[Window]]:
    """Return batches of the windows over documents of these lengths (tokens), sorted by length.

    Args:
        counted: as in `token_bits`; windows without a counted token are left out.
    """
    windows = [w for i, n in enumerate(lengths) for w in windows_of(i, n, context, stride)]
    if counted is not None:
        windows = [w for w in windows if counted[w.document][w.targets].any()]
    return _batched(windows, batch_tokens)


def plan_with_heads(
    documents: Sequence[Tokens],
    context: int,
    counted: Sequence[Counted],
    stride: int = 0,
    batch_tokens: int = 1024,
) -> list[list[Window]]:
    """Return batches in which documents that are scored behind the same head are neighbours, which share it.

    Several answers to one question begin with the question, which is read once for all of them (rows.py).

    Args:
        batch_tokens: tokens read in a batch, a shared head once.
    """
    alone, by_head = [], defaultdict(list)
    for batch in plan_batches([len(d) for d in documents], context, stride, batch_tokens, counted):
        for window in batch:
            tokens = documents[window.document]
            head = int(counted[window.document].argmax())  # the token there is before a counted one
            if window.length < len(tokens) - 1 or head < _LEAST_HEAD:
                alone.append(window)
            else:
                by_head[head, tokens[:head].tobytes()].append(replace(window, head=head))
    alone += [replace(w, head=0) for windows in by_head.values() if len(windows) == 1 for w in windows]
    batches, room = _batched(alone, batch_tokens), 0
    for (head, _), windows in sorted(by_head.items()):
        for i, window in enumerate(windows if len(windows) > 1 else []):
            read = window.length - (head if i else 0)
            if read > room:
                batches.append([])
                read, room = window.length, batch_tokens
            batches[-1].append(window)
            room -= read
    return batches


def _batched(windows: list[Window], batch_tokens: int) -> list[list[Window]]:
    """Return batches of windows by length; padded to the longest of each, they hold at most so many
    tokens."""
    windows = sorted(windows, key=lambda w: (w.length, w.document, w.start))
    batches: list[list[Window]] = []
    for window in windows:
        if not batches or (len(batches[-1]) + 1) * window.length > batch_tokens:
            batches.append([])
        batches[-1].append(window)
    return batches
