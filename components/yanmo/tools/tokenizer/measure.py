"""What is measured of a tokenizer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from yanmo.tokenize.jieba_agreement import agreement
from yanmo.tokenize.segmenter import Array, Segmenter

_SPEED_CHARACTERS = 300_000
RARE = 20
"""An id seen less often in the learned text has hardly been trained."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Metrics of one tokenizer on one text."""

    ids: int
    characters_per_token: float
    """Characters per token of the held-out text, white space included."""
    unused_ids: int
    """Ids that never occur in the learned text."""
    rare_ids: int
    """Ids seen fewer than RARE times in it, the unused ones included."""
    boundary_recall: float
    """Share of jieba's word boundaries that are token boundaries, on held-out sentences."""
    megabytes_per_second: float
    """UTF-8 encoded per CPU-second, the better of two."""


def measure(
    segmenter: Segmenter, learned: Array, held_out: Sequence[str], sentences: Sequence[str]
) -> Measured:
    """Return the metrics of a tokenizer.

    Args:
        learned: its ids of the text that it was made from.
        held_out: documents.
        sentences: of the held-out text, for the comparison with jieba.
    """
    tokens = len(segmenter.encode(pa.array(held_out, pa.string()))[0])
    seen = np.bincount(learned, minlength=segmenter.vocab_size)
    return Measured(
        ids=segmenter.vocab_size,
        characters_per_token=round(sum(map(len, held_out)) / max(tokens, 1), 4),
        unused_ids=int((seen == 0).sum()),
        rare_ids=int((seen < RARE).sum()),
        boundary_recall=agreement(segmenter, sentences)["boundary_recall"],
        megabytes_per_second=round(_speed(segmenter, held_out), 2),
    )


def _speed(segmenter: Segmenter, texts: Sequence[str]) -> float:
    chosen, characters = [], 0
    for text in texts:
        chosen.append(text)
        characters += len(text)
        if characters >= _SPEED_CHARACTERS:
            break
    column = pa.array(chosen, pa.string())
    seconds = []
    for _ in range(2):
        start = time.process_time()
        segmenter.encode(column)
        seconds.append(time.process_time() - start)
    return sum(len(text.encode()) for text in chosen) / 1e6 / max(min(seconds), 1e-9)
