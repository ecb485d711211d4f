"""What texts have copied from the training text: shared runs, the longest of them, the nearest document."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.evaluate.documents.reading import TrainingDocument
from yanmo.evaluate.writing.windows import Cutting, Finds, Windows, han_codes

Ints = npt.NDArray[np.int64]
_NEAREST_LENGTH = 3
_PAIRS = 2_000_000
"""Pairs of places compared at a time, and those of one document: 200 MB."""
_EXCERPT = 200
"""Characters shown of the nearest document."""


@dataclass(frozen=True)
class Copies:
    """Arrays parallel to the texts that are examined."""

    windows: Ints
    """Windows of `length` Han characters."""
    copied: Ints
    """Windows that are somewhere in the training text."""
    longest: Ints
    """Characters of the longest run that is there in one piece; 0 where it is shorter than `length`."""
    covered: Ints
    """Han characters inside copied windows."""
    characters: Ints
    """Han characters."""


def find_copies(
    texts: Sequence[str],
    training: Iterable[Sequence[TrainingDocument]],
    length: int,
    cut: Cutting = han_codes,
) -> Copies:
    """Look for every window of `length` Han characters of `texts` in the training text.

    Args:
        training: batches of documents.
        cut: gives what is counted instead of Han characters.
    """
    asked = Windows(texts, length, cut)
    seen = np.zeros(len(asked), np.bool_)
    longest = np.zeros(len(texts), np.int64)
    for batch in training:
        finds = asked.find([source.text for source in batch])
        seen[finds.window] = True
        for part in _parts(finds, asked):
            np.maximum(longest, _longest_runs(asked, part), out=longest)
    copied = seen[asked.number]
    owner = cut(texts)[1]
    inside = np.zeros(len(owner), np.bool_)
    for offset in range(length):
        inside[asked.places[copied] + offset] = True
    return Copies(
        windows=np.bincount(asked.text, minlength=len(texts)),
        copied=np.bincount(asked.text[copied], minlength=len(texts)),
        longest=longest,
        covered=np.bincount(owner[inside], minlength=len(texts)),
        characters=np.bincount(owner, minlength=len(texts)),
    )


def _parts(finds: Finds, asked: Windows) -> Iterable[Finds]:
    """The finds, cut between documents, so that few have to be paired with windows at a time."""
    pairs = np.bincount(asked.number, minlength=len(asked))[finds.window]
    group = (np.cumsum(pairs) - pairs) // _PAIRS
    first = np.ones(len(pairs), np.bool_)
    first[1:] = np.diff(finds.text) != 0
    group = np.repeat(group[first], np.diff(np.append(np.flatnonzero(first), len(pairs))))
    cuts = np.flatnonzero(np.diff(group)) + 1
    for window, place, text in zip(
        *(np.split(x, cuts) for x in (finds.window, finds.place, finds.text)), strict=True
    ):
        yield Finds(window, place, text)


def _longest_runs(asked: Windows, finds: Finds) -> Ints:
    """The longest common run with one document of a batch, for each text.

    Finds that go on in step, in both texts, are one run: they share the difference of their places.
    """
    result = np.zeros(asked.texts, np.int64)
    order = np.argsort(asked.number, kind="stable")
    counts = np.bincount(asked.number, minlength=len(asked))
    starts = np.cumsum(counts) - counts
    times = counts[finds.window]
    nth = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    chosen = order[np.repeat(starts[finds.window], times) + nth]
    mine, theirs = asked.places[chosen], np.repeat(finds.place, times)
    if not len(mine):
        return result
    by_step = np.lexsort((mine, theirs - mine))
    mine, step, text = mine[by_step], (theirs - mine)[by_step], asked.text[chosen][by_step]
    breaks = np.ones(len(mine), np.bool_)
    breaks[1:] = (np.diff(step) != 0) | (np.diff(mine) != 1)
    heads = np.flatnonzero(breaks)
    runs = np.diff(np.append(heads, len(mine))) + asked.length - 1
    np.maximum.at(result, text[heads], runs)
    return result


def nearest(
    texts: Sequence[str], training: Iterable[Sequence[TrainingDocument]]
) -> list[dict[str, Any] | None]:
    """The training document that is most like each text; None where nothing is shared.

    Likeness is the cosine of the sets of runs of three Han characters (of a document's runs, not its
    different ones): 1 for a copy, about 0.05 for two poems on one theme. Ties go to the smaller id.
    """
    asked = Windows(texts, _NEAREST_LENGTH)
    pairs = np.unique(np.stack([asked.text, asked.number], 1), axis=0)
    size = np.bincount(pairs[:, 0], minlength=len(texts))
    best: list[tuple[float, str, TrainingDocument] | None] = [None] * len(texts)
    for batch in training:
        finds = asked.find([source.text for source in batch])
        for text, source, shared, windows in _shared(pairs, finds, batch):
            likeness = round(shared / math.sqrt(size[text] * windows), 4)
            now = best[text]
            if now is None or (-likeness, source.id) < (-now[0], now[1]):
                best[text] = (likeness, source.id, source)
    return [None if found is None else _described(found[0], found[2]) for found in best]


def _shared(
    pairs: Ints, finds: Finds, batch: Sequence[TrainingDocument]
) -> Iterable[tuple[int, TrainingDocument, int, int]]:
    """(text, document, different windows they share, windows of the document)."""
    held = np.unique(np.stack([finds.text, finds.window], 1), axis=0)
    order = np.argsort(pairs[:, 1], kind="stable")
    by_window = pairs[order]
    first = np.searchsorted(by_window[:, 1], held[:, 1])
    times = np.searchsorted(by_window[:, 1], held[:, 1], side="right") - first
    nth = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    texts = by_window[np.repeat(first, times) + nth, 0]
    documents = np.repeat(held[:, 0], times)
    found, shared = np.unique(np.stack([texts, documents], 1), axis=0, return_counts=True)
    characters = np.bincount(han_codes([source.text for source in batch])[1], minlength=len(batch))
    for (text, document), number in zip(found.tolist(), shared.tolist(), strict=True):
        yield text, batch[document], number, int(characters[document]) - _NEAREST_LENGTH + 1


def _described(likeness: float, source: TrainingDocument) -> dict[str, Any]:
    return {
        "id": source.id,
        "genre": source.genre,
        "title": source.title,
        "likeness": likeness,
        "text": source.text[:_EXCERPT],
    }
