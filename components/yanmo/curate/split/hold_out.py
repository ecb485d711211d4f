"""Which documents are held out: the first groups of each genre, up to a split's size, that train can be kept
apart from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.words import plural
from yanmo.curate.corpus import Corpus
from yanmo.curate.mapped_texts import Compared
from yanmo.curate.split.containment import FORM_OF_WORDS, numbers_to_drop
from yanmo.engine.sql import Tables

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]


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
    """Largest share of the genre's characters, and half of the largest share of its documents."""
    min_documents: int
    """Least documents, even if they exceed the characters; at most a fifth of the genre's groups."""


_LONGEST_SHARE = 0.1
"""A document or group that is longer than this share of a split's characters, and than the genre's median, is
not held out: otherwise one book, or one prolific author, would make up the split."""

_MOST_GROUPS = 2.0
"""A split has at most so many times its share of the groups: where a genre has short texts and long ones, of
which only the short are held out, its share of the characters could be nearly all of them."""

_GROUPED = """
create or replace table grouped as
select kept.position, kept.genre, kept.characters, coalesce(kept.owner, home.cluster) as unit
from kept join texts as home on kept.home = home.position
"""
"""unit: what is never divided, by the digest of the author, of the source or of the cluster's first text."""


def choose(corpus: Corpus, sizes: Sequence[SplitSize], workers: int) -> list[Ints]:
    """Return the documents of each split, by position.

    Makes the table `grouped` of the documents that may be held out.

    A modern text that is made of phrases which many others hold is not held out, as these would have to go
    from train: of 7,644 chats with doctors 3,522; with others held out 280. A genre that would have nothing
    left for a split is held out as it comes. In a classical text one shared run is a quotation, and takes its
    document from train whatever else is in it.
    """
    tables = corpus.tables
    tables.run(_GROUPED)
    first = splits = hold_out(tables, "grouped", sizes)
    if corpus.form.startswith("classical"):
        return splits
    tables.run("create or replace table free as from grouped")
    known, avoided = np.zeros(0, np.int64), 0
    for _ in range(_ROUNDS):
        held = np.concatenate(splits)
        new = np.setdiff1d(held, known)
        if not len(new):
            break
        common = new[_cost_many(corpus, new, held, workers)]
        if not len(common):
            break
        known, avoided = np.union1d(known, new), avoided + len(common)
        tables.add("common", position=common)
        tables.run(
            "delete from free where unit in (select unit from grouped semi join common using (position))"
        )
        splits = hold_out(tables, "free", sizes)
    for before, after in zip(first, splits, strict=True):
        tables.add("before", position=before)
        tables.add("after", position=after)
        tables.run("""
            insert into free select * from grouped anti join free using (position)
            where genre in (select genre from grouped semi join before using (position))
                and genre not in (select genre from grouped semi join after using (position))
        """)
    if avoided:
        log.info(
            "%s not held out, as more than %d others would have to go from train for each",
            plural(avoided, "document of common phrases", "documents of common phrases"),
            FORM_OF_WORDS,
        )
    return hold_out(tables, "free", sizes)


def _cost_many(corpus: Corpus, new: Ints, held: Ints, workers: int) -> npt.NDArray[np.bool_]:
    """For which of the kept documents at `new` more than FORM_OF_WORDS would go, of those not at `held`.

    Of chats the answers alone are looked for: what many ask in the same words leaks nothing.
    """
    places = corpus.tables.rows(f"select file, row from {corpus.at(new, 'new')} order by position")
    compared = Compared.of(corpus.rows(places, Compared.COLUMNS), corpus.form)
    runs = compared.charged(_RUN)
    corpus.tables.add("held", position=held)
    others = "kept anti join held using (position)"
    return np.asarray(numbers_to_drop(corpus, others, runs, compared.texts, workers) > FORM_OF_WORDS)


_HELD = """
create or replace table held as
with bounds as (
    select genre, least($characters, floor($share * whole)::bigint) as budget,
        least($min_documents, groups // 5) as fewest,
        greatest(fewest, ceil($most_groups * $share * groups)) as most,
        greatest(budget * $longest_share, middle) as longest
    from wholes join (select genre, median(size) as middle from left_units group by genre) using (genre)
), filled as (
    select genre, unit, budget, fewest, most,
        sum(size) over (partition by genre order by unit rows unbounded preceding) as filled,
        row_number() over (partition by genre order by unit) as number
    from left_units join bounds using (genre) where size <= longest
)
select genre, unit from filled where (filled <= budget and number <= most) or number <= fewest
"""


def hold_out(tables: Tables, free: str, sizes: Sequence[SplitSize]) -> list[Ints]:
    """Return the positions of each split, rising; groups are never divided within a genre.

    Args:
        free: table of what may be held out, with the columns position, genre, characters and unit. Units are
            taken in their order, so the split is a prefix of it: the same text is held out whatever else is
            there.
        sizes: size of each split; the first one is filled first.
    """
    tables.run(f"""
        create or replace table left_units as
        select genre, unit, sum(characters)::bigint as size from {free} group by genre, unit
    """)
    tables.run("""
        create or replace table wholes as
        select genre, sum(size)::bigint as whole, count(*) as groups from left_units group by genre
    """)
    result = []
    for size in sizes:
        tables.run(
            _HELD,
            characters=size.characters,
            share=float(size.share),
            min_documents=size.min_documents,
            longest_share=_LONGEST_SHARE,
            most_groups=_MOST_GROUPS,
        )
        found = tables.table(
            f"select position from {free} semi join held using (genre, unit) order by position"
        )
        result.append(found["position"].to_numpy().astype(np.int64))
        tables.run("create or replace table left_units as from left_units anti join held using (genre, unit)")
    return result
