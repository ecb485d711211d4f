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
from yanmo.common.errors import naming
from yanmo.common.hash_set import distinct
from yanmo.common.logs import Progress
from yanmo.curate.corpus import Corpus
from yanmo.curate.mapped_texts import read_texts
from yanmo.engine.maps import ordered_map

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Contained:
    """What a corpus shares with other texts."""

    positions: Ints
    """Documents that share a run, in the order of clusters."""
    shares: npt.NDArray[np.float64]
    """For each of them the share of its units in shared runs."""
    hashes: Hashes
    """The runs that were found, sorted."""


@dataclass(frozen=True, kw_only=True)
class _File:
    mapped: Path
    rows: npt.NDArray[np.int32]
    runs: Path
    length: int


def find_contained(corpus: Corpus, chosen: str, runs: Runs, workers: int) -> Contained:
    """Examine some texts of the corpus; each mapped file is read once.

    Args:
        chosen: relation of texts, as in `Corpus`.
        runs: runs of the other texts.
    """
    found, shares = [np.zeros(0, np.int64)], [np.zeros(0)]
    hashes = [np.zeros(0, np.uint64)]
    for positions, (of_file, own) in _each_file(corpus, chosen, runs, workers, look_at_file):
        found.append(positions[of_file > 0])
        shares.append(of_file[of_file > 0])
        hashes.append(own)
    positions = np.concatenate(found)
    ordered = corpus.in_order(positions)
    by_position = np.argsort(positions)
    places = by_position[np.searchsorted(positions, ordered, sorter=by_position)]
    return Contained(
        positions=ordered, shares=np.concatenate(shares)[places], hashes=distinct(np.concatenate(hashes))
    )


def common_runs(corpus: Corpus, chosen: str, runs: Runs, workers: int, more_than: int) -> Hashes:
    """Return those of `runs` that occur in more than `more_than` of some texts of the corpus."""
    documents = np.zeros(len(runs.hashes), np.int64)
    for _, (hashes, numbers) in _each_file(corpus, chosen, runs, workers, count_in_file):
        documents[np.searchsorted(runs.hashes, hashes)] += numbers
    return runs.hashes[documents > more_than]


def _each_file(
    corpus: Corpus, chosen: str, runs: Runs, workers: int, look: Callable[[_File], T]
) -> Iterator[tuple[Ints, T]]:
    """For each mapped file: the positions of its texts among some, and what `look` finds in them."""
    groups, count = deque[Ints](), corpus.number_of(chosen)
    if not len(runs.hashes) or not count:
        return
    progress = Progress(log, "looked for runs of held-out text", count, unit="documents")
    with tempfile.NamedTemporaryFile(suffix=".npy") as saved:
        with naming(Path(tempfile.gettempdir())):
            np.save(saved, runs.hashes)
            saved.flush()

        def tasks() -> Iterator[_File]:
            query = f"select file, row, position from {chosen} order by file, row"
            for number, rows in corpus.tables.by_file(query):
                groups.append(rows["position"].to_numpy())
                yield _File(
                    mapped=corpus.paths[number],
                    rows=rows["row"].to_numpy(),
                    runs=Path(saved.name),
                    length=runs.length,
                )

        with ordered_map(look, tasks(), workers) as results:
            for found in results:
                group = groups.popleft()
                yield group, found
                progress.add(len(group))


def note_passages(corpus: Corpus, chosen: str, runs: Runs, workers: int) -> None:
    """Note of some texts the share that lies in `runs`, and the longest passage, in the table `passages`."""
    for positions, (shares, longest) in _each_file(corpus, chosen, runs, workers, passages_in_file):
        corpus.tables.append("passages", position=positions, value=shares, note=longest)


def passages_in_file(task: _File) -> tuple[npt.NDArray[np.float64], list[str]]:
    """Return how much of each row of a mapped file lies in shared runs, and its longest passage in them."""
    runs, texts = _runs(task.runs, task.length), read_texts(task.mapped, task.rows)
    return runs.shares(texts)[0], [runs.longest(text) for text in texts]


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


def fewest_to_drop(corpus: Corpus, chosen: str, runs: Runs, texts: Sequence[str], workers: int) -> Ints:
    """Return the positions to drop of some texts, for the others to cover at most HIGH_COVERAGE.

    Those go first that hold the most runs of a text, and no more of them than have to. Memory: 16 bytes for
    each place of a run of a text that is above.
    """
    goes: list[int] = []
    for _, first in _in_the_way(corpus, chosen, runs, texts, workers, goes):
        goes += first.tolist()
    return np.array(goes, np.int64)


def numbers_to_drop(corpus: Corpus, chosen: str, runs: Runs, texts: Sequence[str], workers: int) -> Ints:
    """For each text, how many documents `fewest_to_drop` would drop for it alone."""
    numbers = np.zeros(len(texts), np.int64)
    for text, first in _in_the_way(corpus, chosen, runs, texts, workers, []):
        numbers[text] = len(first)
    return numbers


def _in_the_way(
    corpus: Corpus, chosen: str, runs: Runs, texts: Sequence[str], workers: int, gone: list[int]
) -> Iterator[tuple[int, Ints]]:
    """For each text above HIGH_COVERAGE: its index, and the positions to drop beside those that are gone."""
    covered = coverage(texts, runs, find_contained(corpus, chosen, runs, workers).hashes)
    above = np.flatnonzero(covered > HIGH_COVERAGE).tolist()
    wanted = Runs.of([texts[i] for i in above], runs.length).hashes
    wanted = np.intersect1d(wanted, runs.hashes, assume_unique=True)
    owners, parts = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    for positions, (hashes, rows) in _each_file(
        corpus, chosen, Runs(runs.length, wanted), workers, runs_in_file
    ):
        owners.append(positions[rows])
        parts.append(hashes)
    owner, found = np.concatenate(owners), np.concatenate(parts)
    documents = corpus.in_order(np.unique(owner))
    rising = np.argsort(documents)
    document = rising[np.searchsorted(documents, owner, sorter=rising)]
    for i in above:
        is_gone = np.isin(documents, gone)[document]
        own = np.flatnonzero(np.isin(found, Runs.of([texts[i]], runs.length).hashes) & ~is_gone)
        order = np.argsort(-np.bincount(document[own], minlength=len(documents)), kind="stable")
        number = _first_enough(texts[i], runs, found[own], np.argsort(order)[document[own]])
        yield i, documents[order[:number]]


def _first_enough(text: str, runs: Runs, found: Hashes, place: Ints) -> int:
    """Return how many go, the first by `place`, for the others to cover little enough of `text`."""

    def is_enough(gone: int) -> bool:
        return bool(coverage([text], runs, found[place >= gone])[0] <= HIGH_COVERAGE)

    return bisect_left(range(place.max(initial=-1) + 1), True, key=is_enough)
