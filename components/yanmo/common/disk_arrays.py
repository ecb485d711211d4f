"""Arrays with an item for each document of a corpus: in temporary files once they are large.

The system reads a page of a mapped file when it is touched, and takes it back when memory is short. So what a
process has to be given does not grow with the corpus; where there is enough memory, nothing is read twice.
The files have no name and end with the process. Where the disk is full, that is said when an array is made.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.errors import naming
from yanmo.common.freed_memory import drop_pages

Ints = npt.NDArray[np.signedinteger[Any]]
Ints32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Keys = Callable[[Any], Sequence[npt.NDArray[Any]]]
"""Gives the keys of some rows, by a slice or by an array of their numbers; the last one counts first."""

IN_MEMORY = 8 << 20
AT_A_TIME = 1 << 20
_SAMPLES = 64
"""Rows of a sample for each part of a sort: parts are then of nearly the same size."""
_PAGES: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def new_array(count: int, dtype: npt.DTypeLike, in_memory: int = IN_MEMORY) -> npt.NDArray[Any]:
    """Return an array of zeros.

    Args:
        in_memory: bytes up to which it stays in memory.

    Raises:
        OSError: with the name of the temporary folder, as where its disk is full.
    """
    size = count * np.dtype(dtype).itemsize
    if size <= in_memory:
        return np.zeros(count, dtype)
    with naming(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):  # else a full disk would end the process with a bus error
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
        pages = mmap.mmap(file.fileno(), size)
    _PAGES.add(pages)
    return np.frombuffer(pages, dtype)


def release_pages() -> None:
    """Let go the pages of all large arrays: nothing is lost, but they are not counted as memory any more."""
    for pages in list(_PAGES):
        drop_pages(pages)


def slices(count: int, at_a_time: int = AT_A_TIME // 4) -> Iterator[slice]:
    """The parts of arrays of `count` items: what is computed from one is small. Lets go of what was read."""
    for start in range(0, count, at_a_time):
        yield slice(start, min(start + at_a_time, count))
        if count > at_a_time:
            release_pages()


def numbers_where(holds: Callable[[slice], Bools], count: int) -> Ints32:
    """Return the numbers of the rows for which something holds, rising.

    Args:
        holds: says it of some rows. It is asked twice, so that nothing is kept until the number is known.
    """
    found = new_array(sum(int(np.count_nonzero(holds(some))) for some in slices(count)), np.int32)
    start = 0
    for some in slices(count):
        here = np.flatnonzero(holds(some))
        found[start : start + len(here)] = here + some.start
        start += len(here)
    return found


def taken(values: npt.NDArray[Any], index: Ints) -> npt.NDArray[Any]:
    """`values[index]`."""
    found = new_array(len(index), values.dtype)
    for some in slices(len(index)):
        found[some] = values[index[some]]
    return found


def picked(values: npt.NDArray[Any], is_picked: Bools) -> npt.NDArray[Any]:
    """`values[is_picked]`."""
    return taken(values, numbers_where(lambda some: is_picked[some], len(values)))


def joined_arrays(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return all of `arrays`, which it empties, one after another."""
    found, start = new_array(sum(map(len, arrays)), arrays[0].dtype), 0
    while arrays:
        one = arrays.pop(0)
        found[start : start + len(one)] = one
        start += len(one)
        release_pages()
    return found


def without(values: npt.NDArray[Any], is_dropped: Bools) -> npt.NDArray[Any]:
    """`values[~is_dropped]`."""
    return taken(values, numbers_where(lambda some: ~is_dropped[some], len(values)))


def rows_of(some: slice) -> Ints32:
    """Return the numbers of some rows."""
    return np.arange(some.start, some.stop, dtype=np.int32)


def all_rows(count: int) -> Ints32:
    """Return the numbers of all rows."""
    found = new_array(count, np.int32)
    for some in slices(count):
        found[some] = rows_of(some)
    return found


def group_starts(keys: Keys, order: Ints) -> Bools:
    """For each row, in this order, whether a key differs from the one before; and True behind them."""
    is_new = new_array(len(order) + 1, np.bool_)
    is_new[[0, -1]] = True
    for some in slices(len(order) - 1):
        both = zip(keys(order[:-1][some]), keys(order[1:][some]), strict=True)
        is_new[1:-1][some] = np.logical_or.reduce([before != here for before, here in both])
    return is_new


def tied(is_new: Bools) -> Ints32:
    """Return the places in an order whose keys are those of the place before or behind.

    Args:
        is_new: `group_starts` of the order.
    """
    return numbers_where(lambda some: ~(is_new[:-1][some] & is_new[1:][some]), len(is_new) - 1)


def groups_of(order: Ints, is_new: Bools) -> Ints32:
    """For each row the number of its group.

    Args:
        order: the rows, one group after the other.
        is_new: for each of them in this order, whether a group begins with it.
    """
    found, before = new_array(len(order), np.int32), -1
    for some in slices(len(order)):
        numbers = before + np.cumsum(is_new[some], dtype=np.int32)
        found[order[some]] = numbers
        before = int(numbers[-1])
    return found


def sorted_order(keys: Keys, count: int, at_a_time: int = AT_A_TIME) -> Ints32:
    """Return the numbers of `count` rows in the order of their keys, as `numpy.lexsort` gives them.

    Rows with equal keys stay in their order. Of more rows than are sorted together, parts are: first
    rows are put into parts by the keys of a sample, then each part is sorted by itself.

    Args:
        at_a_time: rows that are sorted together; much more than the square root of `count`.
    """
    if count <= at_a_time:
        return _sorted(keys(slice(0, count)))
    number = -(-2 * count // at_a_time)
    sample = np.linspace(0, count - 1, number * _SAMPLES).astype(np.int32)
    bounds = sample[_sorted(keys(sample))][_SAMPLES::_SAMPLES]
    of_bounds = keys(bounds)
    placed, ends = new_array(count, np.int32), []
    for some in slices(count, at_a_time // 2):
        rows = rows_of(some)
        both = [np.concatenate(each) for each in zip(keys(some), of_bounds, strict=True)]
        order = _sorted([np.concatenate((rows, bounds)), *both])
        is_row = order < len(rows)
        placed[some] = rows[order[is_row]]
        before = np.flatnonzero(~is_row) - np.arange(len(bounds))
        ends.append(some.start + np.concatenate(([0], before, [len(rows)])))
    found, start = new_array(count, np.int32), 0
    for low, high in pairwise(np.array(ends).T):
        rows = np.sort(np.concatenate([placed[a:b] for a, b in zip(low, high, strict=True)]))
        found[start : start + len(rows)] = rows[_sorted(keys(rows))]
        start += len(rows)
        release_pages()
    return found


def _sorted(keys: Sequence[npt.NDArray[Any]]) -> Ints32:
    order = np.argsort(keys[0], kind="stable") if len(keys) == 1 else np.lexsort(tuple(keys))
    return order.astype(np.int32)
