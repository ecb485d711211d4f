"""Which documents are held out: the first groups of each genre, up to a split's size, that train can be kept
apart from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.disk_arrays import (
    all_rows,
    group_starts,
    groups_of,
    new_array,
    numbers_where,
    picked,
    slices,
    sorted_order,
    taken,
    without,
)
from yanmo.common.words import plural
from yanmo.curate.corpus import Corpus
from yanmo.curate.mapped_texts import Compared
from yanmo.curate.split.containment import FORM_OF_WORDS, numbers_to_drop

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]
Ints32 = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


_RUN = 13
"""Units of a run: the default of --overlap-characters, an option of train, which moves nothing held out."""
_ROUNDS = 6
"""How often others are chosen, each time with one look at the whole text. Where half of a genre is made of
such phrases, 2 % of what is held out is left with them."""


@dataclass(frozen=True, kw_only=True)
class SplitSize:
    """Size of a held-out split, per genre."""

    characters: int
    """Largest number of characters, per genre."""
    share: float
    """Largest share of the genre's characters."""
    min_documents: int
    """Least documents, even if they exceed the characters; at most a fifth of the genre's groups."""


_LONGEST_SHARE = 0.1
"""A document or group that is longer than this share of a split's characters, and than the genre's median, is
not held out: otherwise one book, or one prolific author, would make up the split."""


def choose(corpus: Corpus, sizes: Sequence[SplitSize], workers: int) -> list[Ints]:
    """Return the documents of each split, as indexes into `corpus.kept`.

    A modern text that is made of phrases which many others hold is not held out, as these would have to go
    from train: of 7,644 chats with doctors 3,522; with others held out 280. A genre that would have nothing
    left for a split is held out as it comes. In a classical text one shared run is a quotation, and takes its
    document from train whatever else is in it.
    """
    candidates, chosen, groups = corpus.candidates, corpus.chosen, corpus.groups()
    rows: Ints = all_rows(len(chosen))
    genre, characters = taken(candidates.genre, chosen), taken(candidates.characters, chosen)

    def held_of(free: Ints) -> list[Ints]:
        found = hold_out(taken(genre, free), taken(characters, free), taken(groups, free), sizes)
        return [taken(free, held) for held in found]

    first = splits = held_of(rows)
    if corpus.form.startswith("classical"):
        return splits
    free, known, avoided = rows, np.zeros(0, np.int64), 0
    for _ in range(_ROUNDS):
        held = np.concatenate(splits)
        new = np.setdiff1d(held, known)
        if not len(new):
            break
        common = new[_cost_many(corpus, new, held, workers)]
        if not len(common):
            break
        known, avoided = np.union1d(known, new), avoided + len(common)
        free = free[~np.isin(taken(groups, free), groups[common])]
        splits = held_of(free)
    for before, after in zip(first, splits, strict=True):
        lost = np.setdiff1d(genre[before], genre[after])
        free = np.union1d(free, rows[np.isin(taken(genre, rows), lost)])
    if avoided:
        log.info(
            "%s not held out, as more than %d others would have to go from train for each",
            plural(avoided, "document of common phrases", "documents of common phrases"),
            FORM_OF_WORDS,
        )
    return held_of(free)


def _cost_many(corpus: Corpus, new: Ints, held: Ints, workers: int) -> Bools:
    """For which of the kept documents at `new` more than FORM_OF_WORDS would go, of those not at `held`.

    Of chats the answers alone are looked for: what many ask in the same words leaks nothing.
    """
    compared = Compared.of(corpus.rows(taken(corpus.chosen, new), Compared.COLUMNS), corpus.form)
    runs = compared.charged(_RUN)
    is_held = new_array(len(corpus.kept), np.bool_)
    is_held[held] = True
    others = without(corpus.kept, is_held)
    return np.asarray(numbers_to_drop(corpus, others, runs, compared.texts, workers) > FORM_OF_WORDS)


def hold_out(genre: Ints32, characters: Ints32, group: Ints, sizes: Sequence[SplitSize]) -> list[Ints]:
    """Indexes of the documents of each split, genre by genre; groups are never divided within a genre.

    Args:
        genre: genre of each document, as a number.
        characters: characters of each document.
        group: number of each document's cluster, author or source. Groups are taken in this order, so the
            split is a prefix of it: the same text is held out whatever else is there.
        sizes: size of each split; the first one is filled first.
    """
    result: list[list[Ints]] = [[] for _ in sizes]
    for number in range(int(genre.max(initial=-1)) + 1):
        documents = _of_genre(genre, number)
        if not len(documents):
            continue
        unit = _numbered(taken(group, documents))
        length = new_array(int(unit.max()) + 1, np.int64)
        for some in slices(len(unit)):
            np.add.at(length, unit[some], characters[documents[some]])
        total, is_left = int(length.sum()), np.ones(len(length), np.bool_)
        for found, size in zip(result, sizes, strict=True):
            budget = min(size.characters, int(size.share * total))
            held = _fill(length, is_left, budget, min(size.min_documents, len(length) // 5))
            is_held = np.zeros(len(length), np.bool_)
            is_held[held], is_left[held] = True, False
            found.append(taken(documents, _of_units(unit, is_held)))
    return [np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64) for found in result]


def _of_genre(genre: Ints32, number: int) -> Ints32:
    """Return the documents of a genre."""
    return numbers_where(lambda some: genre[some] == number, len(genre))


def _of_units(unit: Ints32, is_held: Bools) -> Ints32:
    """Return the documents whose unit is held."""
    return numbers_where(lambda some: is_held[unit[some]], len(unit))


def _numbered(groups: Ints) -> Ints32:
    """`groups` with the numbers from 0 on, in the same order."""
    order = sorted_order(lambda some: [groups[some]], len(groups))
    is_new = group_starts(lambda some: [groups[some]], order)
    return groups_of(order, is_new)


def _fill(characters: Ints, is_left: Bools, budget: int, min_units: int) -> Ints:
    """Return the first units that are left and hold `budget` characters together, at least `min_units`."""
    found, held, is_full = [np.zeros(0, np.int64)], 0, False
    if not is_left.any():
        return found[0]
    longest = max(budget * _LONGEST_SHARE, _median(characters, is_left))
    for some in slices(len(characters)):
        fits = np.flatnonzero(is_left[some] & (characters[some] <= longest))
        ends = held + np.cumsum(characters[some][fits])
        number = 0 if is_full else int(np.searchsorted(ends, budget, side="right"))
        is_full |= number < len(fits)
        held = int(ends[number - 1]) if number else held
        number = max(number, min_units - sum(map(len, found)))
        found.append(fits[:number] + some.start)
        if is_full and sum(map(len, found)) >= min_units:
            break
    return np.concatenate(found)


def _median(values: Ints, is_counted: Bools) -> float:
    """`numpy.median` of those that count, which copies them once more."""
    found = picked(values, is_counted)
    middle = [(len(found) - 1) // 2, len(found) // 2]
    found.partition(middle)
    return float(found[middle].mean())
