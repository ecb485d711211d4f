"""Which documents are held out: texts that train can be kept apart from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.disk_arrays import new_array, taken, without
from yanmo.common.words import plural
from yanmo.curate.corpus import Corpus
from yanmo.curate.mapped_texts import Compared
from yanmo.curate.split.containment import FORM_OF_WORDS, numbers_to_drop
from yanmo.curate.split.hold_out import SplitSize, hold_out

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]
Bools = npt.NDArray[np.bool_]

_RUN = 13
"""Units of a run: the default of --overlap-characters, an option of train, which moves nothing held out."""
_ROUNDS = 6
"""How often others are chosen, each time with one look at the whole text. Where half of a genre is made of
such phrases, 2 % of what is held out is left with them."""


def choose(corpus: Corpus, rows: Ints, sizes: Sequence[SplitSize], workers: int) -> list[Ints]:
    """The documents of each split, as indexes into `corpus.kept`, chosen from those at `rows`.

    A modern text that is made of phrases which many others hold is not held out, as these would have to go
    from train: of 7,644 chats with doctors 3,522; with others held out 280. A genre that would have nothing
    left for a split is held out as it comes. In a classical text one shared run is a quotation, and takes its
    document from train whatever else is in it.
    """
    candidates, chosen, groups = corpus.candidates, corpus.chosen, corpus.groups()
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
