"""How much of an evaluation set is scored: so many documents of each genre, the same ones in every run.

A budget in minutes becomes a number of documents by counting operations at a stated speed, not by a clock:
two runs of one command must give equal bytes, whatever else the machine does, and a key that holds the time
taken would never be found again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from yanmo.evaluate.documents.reading import Document

OPERATIONS_PER_MINUTE = 60 * 20e9
"""One core of an ordinary server: fp32 multiply-adds counted as two."""


def first_of_each_genre(documents: Sequence[Document], number: int) -> list[Document]:
    """At most `number` documents of each genre, in their order; all for 0.

    Sorted by id, which is a hash, the first are a fair draw, and a smaller budget's are among a larger one's.
    """
    groups = itertools.groupby(documents, key=lambda d: d.genre)
    return [d for _, group in groups for d in (itertools.islice(group, number) if number else group)]


def affordable(documents: Sequence[Document], operations: npt.NDArray[np.float64], most: float) -> int:
    """The largest number per genre whose documents take at most `most` operations; one at least.

    Args:
        operations: operations of each document.
    """
    rank = np.concatenate(
        [np.arange(len(list(group))) for _, group in itertools.groupby(documents, key=lambda d: d.genre)]
    )
    spent = np.bincount(rank, operations).cumsum()
    return max(1, int(np.searchsorted(spent, most, "right")))
