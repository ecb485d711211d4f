"""Finds documents that share runs with other texts (evaluation set, benchmark)."""

from __future__ import annotations

import logging
import tempfile
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from yanmo.chinese.text_runs import Hashes, Runs
from yanmo.common.disk_arrays import new_array, taken
from yanmo.common.errors import naming
from yanmo.common.hash_set import distinct
from yanmo.common.logs import Progress
from yanmo.curate.corpus import Corpus
from yanmo.curate.mapped_texts import read_texts
from yanmo.engine.maps import ordered_map
from yanmo.formats.row_numbers import by_file

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Contained:
    """What a corpus shares with other texts."""

    shares: npt.NDArray[np.float64]
    """For each document examined, the share of its units in shared runs."""
    hashes: Hashes
    """The runs that were found, sorted."""


@dataclass(frozen=True, kw_only=True)
class _File:
    mapped: Path
    rows: npt.NDArray[np.int32]
    runs: Path
    length: int


def find_contained(corpus: Corpus, positions: Ints, runs: Runs, workers: int) -> Contained:
    """Examine the corpus' documents at `positions`; each mapped file is read once.

    Args:
        runs: runs of the other texts.
    """
    shares, found = new_array(len(positions), np.float64), [np.zeros(0, np.uint64)]
    for group, (of_group, hashes) in _each_file(corpus, positions, runs, workers, look_at_file):
        shares[group] = of_group
        found.append(hashes)
    return Contained(shares=shares, hashes=distinct(np.concatenate(found)))


def common_runs(corpus: Corpus, positions: Ints, runs: Runs, workers: int, more_than: int) -> Hashes:
    """Return those of `runs` that occur in more than `more_than` of the corpus' documents at `positions`."""
    documents = np.zeros(len(runs.hashes), np.int64)
    for _, (hashes, numbers) in _each_file(corpus, positions, runs, workers, count_in_file):
        documents[np.searchsorted(runs.hashes, hashes)] += numbers
    return runs.hashes[documents > more_than]


def _each_file(
    corpus: Corpus, positions: Ints, runs: Runs, workers: int, look: Callable[[_File], T]
) -> Iterator[tuple[Ints, T]]:
    """For each mapped file: indexes into `positions` of its documents, and what `look` finds in them."""
    if not len(runs.hashes) or not len(positions):
        return
    chosen, groups = taken(corpus.copies.unique, positions), deque[Ints]()
    progress = Progress(log, "looked for runs of held-out text", len(chosen), unit="documents")
    with tempfile.NamedTemporaryFile(suffix=".npy") as saved:
        with naming(Path(tempfile.gettempdir())):
            np.save(saved, runs.hashes)
            saved.flush()

        def tasks() -> Iterator[_File]:
            for number, group, rows in by_file(corpus.candidates.starts, chosen):
                groups.append(group)
                yield _File(mapped=corpus.paths[number], rows=rows, runs=Path(saved.name), length=runs.length)

        with ordered_map(look, tasks(), workers) as results:
            for found in results:
                group = groups.popleft()
                yield group, found
                progress.add(len(group))


def look_at_file(task: _File) -> tuple[npt.NDArray[np.float64], Hashes]:
    """Return how much of each row of a mapped file lies in shared runs, and the runs."""
    return _runs(task.runs, task.length).shares(read_texts(task.mapped, task.rows))


def count_in_file(task: _File) -> tuple[Hashes, Ints]:
    """Return the runs that rows of a mapped file contain, sorted, and how many rows contain each."""
    return _runs(task.runs, task.length).documents_with(read_texts(task.mapped, task.rows))


def runs_in_file(task: _File) -> tuple[Hashes, Ints]:
    """Return every place in rows of a mapped file where one of the runs is: its hash, and the row's index."""
    return _runs(task.runs, task.length).places(read_texts(task.mapped, task.rows))


@lru_cache(maxsize=1)
def _runs(path: Path, length: int) -> Runs:
    return Runs(length, np.load(path))


FORM_OF_WORDS = 10
"""A run that more training documents than this hold is a common phrase (NeMo Curator's `max_matches`)."""
HIGH_COVERAGE = 0.2
"""A held-out text with more of its units than this inside training runs is counted in the report."""


def coverage(texts: Sequence[str], runs: Runs, found: Hashes) -> npt.NDArray[np.float64]:
    """Return the share of each text's units inside runs that were `found`."""
    hashes, owner = runs.of_texts(texts)
    starts = np.isin(hashes, found)
    result = np.zeros(len(texts))
    for index in np.unique(owner[starts]):
        inside = starts[owner == index]
        covered = np.convolve(inside, np.ones(runs.length, np.int64)) > 0
        result[index] = covered.mean()
    return result


def fewest_to_drop(corpus: Corpus, positions: Ints, runs: Runs, texts: Sequence[str], workers: int) -> Bools:
    """Return which documents at `positions` to drop, for the others to cover at most HIGH_COVERAGE.

    Those go first that hold the most runs of a text, and no more of them than have to. Memory: 16 bytes for
    each place of a run of a text that is above.
    """
    goes = np.zeros(len(positions), np.bool_)
    for _, first in _in_the_way(corpus, positions, runs, texts, workers, goes):
        goes[first] = True
    return goes


def numbers_to_drop(corpus: Corpus, positions: Ints, runs: Runs, texts: Sequence[str], workers: int) -> Ints:
    """For each text, how many documents `fewest_to_drop` would drop for it alone."""
    numbers = np.zeros(len(texts), np.int64)
    none = np.zeros(len(positions), np.bool_)
    for text, first in _in_the_way(corpus, positions, runs, texts, workers, none):
        numbers[text] = len(first)
    return numbers


def _in_the_way(
    corpus: Corpus, positions: Ints, runs: Runs, texts: Sequence[str], workers: int, goes: Bools
) -> Iterator[tuple[int, Ints]]:
    """For each text above HIGH_COVERAGE: its index, and the documents to drop beside those in `goes`."""
    covered = coverage(texts, runs, find_contained(corpus, positions, runs, workers).hashes)
    above = np.flatnonzero(covered > HIGH_COVERAGE).tolist()
    wanted = Runs.of([texts[i] for i in above], runs.length).hashes
    wanted = np.intersect1d(wanted, runs.hashes, assume_unique=True)
    owners, parts = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    for group, (hashes, rows) in _each_file(
        corpus, positions, Runs(runs.length, wanted), workers, runs_in_file
    ):
        owners.append(group[rows])
        parts.append(hashes)
    document, found = np.concatenate(owners), np.concatenate(parts)
    for i in above:
        own = np.flatnonzero(np.isin(found, Runs.of([texts[i]], runs.length).hashes) & ~goes[document])
        order = np.argsort(-np.bincount(document[own], minlength=len(goes)), kind="stable")
        yield i, order[: _first_enough(texts[i], runs, found[own], np.argsort(order)[document[own]])]


def _first_enough(text: str, runs: Runs, found: Hashes, place: Ints) -> int:
    """Return how many go, the first by `place`, for the others to cover little enough of `text`."""

    def is_enough(gone: int) -> bool:
        return bool(coverage([text], runs, found[place >= gone])[0] <= HIGH_COVERAGE)

    return bisect_left(range(place.max(initial=-1) + 1), True, key=is_enough)
