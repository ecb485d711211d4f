"""The rows of many files, numbered through in the order of files and rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.disk_arrays import new_array, release_pages, slices, sorted_order

Ints = npt.NDArray[np.signedinteger[Any]]
Ints32 = npt.NDArray[np.int32]


def places_of(starts: Ints, index: Ints) -> tuple[Ints32, Ints32]:
    """Return the file of some rows, and their row in it.

    Args:
        starts: the number of the first row of each file, and the number of all rows.
        index: the numbers of the rows.
    """
    file, row = new_array(len(index), np.int32), new_array(len(index), np.int32)
    for some in slices(len(index)):
        found = np.searchsorted(starts, index[some], side="right") - 1
        file[some], row[some] = found, index[some] - starts[found]
    return file, row


def by_file(starts: Ints, index: Ints) -> Iterator[tuple[int, Ints32, Ints32]]:
    """Yield some rows file by file: the file's number, their places in `index`, the rows, rising.

    Args:
        starts: as for `places_of`.
        index: the numbers of the rows; one may be there several times.
    """
    order = sorted_order(lambda some: [index[some]], len(index))
    rows = np.zeros(len(starts), np.int64)
    for some in slices(len(index)):
        file = np.searchsorted(starts, index[some], side="right") - 1
        rows[1:] += np.bincount(file, minlength=len(starts) - 1)
    bounds = np.cumsum(rows)
    for number, (low, high) in enumerate(pairwise(bounds.tolist())):
        if low < high:
            here = order[low:high]
            yield number, here, (index[here] - starts[number]).astype(np.int32)
            release_pages()
