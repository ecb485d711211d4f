"""The rows of many files, numbered through in the order of files and rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.signedinteger[Any]]
Ints32 = npt.NDArray[np.int32]

_AT_A_TIME = 1 << 16


def slices(count: int) -> Iterator[slice]:
    """The parts of an array of `count` rows, where something is needed of each row that is not kept."""
    return (slice(start, start + _AT_A_TIME) for start in range(0, count, _AT_A_TIME))


def places_of(starts: Ints, index: Ints) -> tuple[Ints32, Ints32]:
    """The file of some rows, and their row in it.

    Args:
        starts: the number of the first row of each file, and the number of all rows.
        index: the numbers of the rows.
    """
    file, row = np.empty(len(index), np.int32), np.empty(len(index), np.int32)
    for some in slices(len(index)):
        found = np.searchsorted(starts, index[some], side="right") - 1
        file[some], row[some] = found, index[some] - starts[found]
    return file, row


def by_file(starts: Ints, index: Ints) -> Iterator[tuple[int, Ints32, Ints32]]:
    """Some rows, file by file: the file's number, where in `index` its rows are, and these rows, rising.

    Args:
        starts: as for `places_of`.
        index: the numbers of the rows; one may be there several times.
    """
    order = np.argsort(index, kind="stable").astype(np.int32)
    bounds = np.searchsorted(index, starts, sorter=order)
    for number, (low, high) in enumerate(pairwise(bounds.tolist())):
        if low < high:
            here = order[low:high]
            yield number, here, (index[here] - starts[number]).astype(np.int32)
