"""Chooses documents whose units (such as characters) add up to a quota, or to less by a part of a document.

Documents are taken in an order drawn by the seed, and those of the last 2,000 units by a subset-sum over at
most 512 documents: ordinary text comes out exact. Where it does not (many documents of few sizes), the drawn
order goes on instead without documents that no longer fit: what is missing is less than the smallest of those
left. The sums that can be reached are the bits of one big integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa

from yanmo.engine.sql import Tables

_POOL = 512
"""Documents of the subset-sum, at most."""
_POOL_BITS = 1 << 29
"""Bits that the sums of the subset-sum take at most (64 MB); a pool of long documents is made smaller."""
_ROOM = 2000
"""Units that are left to the subset-sum, at least: with fewer, some sums cannot be reached."""
_TAIL = 64
"""Documents that are left to the subset-sum, at least, for the same reason."""


_CUT = f"""
create or replace table cut as
with bounds as (
    select class, target, max(filled) as whole,
        count(*) filter (filled <= greatest(target - {_ROOM}, 0)) as within,
        greatest(0, least(within, count(*) - {_TAIL})) as first
    from drawn join goals using (class) group by class, target
)
select class, target, whole, first,
    (target - coalesce(max(filled) filter (number < first), 0))::bigint as rest,
    least({_POOL}, {_POOL_BITS} // (rest + 1)) as size
from drawn join bounds using (class) group by class, target, whole, first
"""
"""first: documents of a class that are taken as they come. rest: units that a subset of the pool fills."""

_POOLED = """
with fitting as (
    select class, number, units, rest, size,
        row_number() over (partition by class order by number) <= size // 2 as is_next
    from drawn join cut using (class) where number >= first and units <= rest and target < whole
), placed as (
    select *, row_number() over (
        partition by class, is_next order by if(is_next, number, units), number
    ) as place
    from fitting
)
select class::varchar as class, number, units, rest from placed
where is_next or place <= size - size // 2 order by class, is_next desc, place
"""
"""The documents of each pool: half in their order, half the shortest, for small steps."""

_TAKEN = """
create or replace table taken as
select class, number from drawn join cut using (class) where number < first or target >= whole
union all select class, number from subset
"""

_LACKING = """
create or replace table {name} as
select class, target, (target - coalesce(sum(units), 0))::bigint as missing
from cut left join (from drawn semi join taken using (class, number)) using (class)
where target < whole group by class, target having missing > 0
"""


def choose(tables: Tables) -> None:
    """Make the table `taken` of documents that hold the goals, or less by less than one of those left.

    Args:
        tables: with `drawn`, of the documents of each `class` in the order in which they should be taken:
            `number`, from 0 on; `units`, all above 0; `filled`, the sum of them up to this one. And with
            `goals`: `class` and its `target`, units, 0 or more.
    """
    tables.run(_CUT)
    classes: list[str] = []
    numbers: list[int] = []
    rows = (row for batch in tables.batches(_POOLED) for row in batch.to_pylist())
    for name, of_class in groupby(rows, itemgetter("class")):
        pool = list(of_class)
        chosen = best_subset([row["units"] for row in pool], pool[0]["rest"])
        classes += [name] * len(chosen)
        numbers += [pool[i]["number"] for i in chosen]
    tables.add("subset", number=np.array(numbers, np.int64), **{"class": pa.array(classes, pa.string())})
    tables.run(_TAKEN)
    tables.run(_LACKING.format(name="lacking"))
    if tables.value("select count(*) from lacking"):
        _as_they_fit(tables)


def best_subset(sizes: Sequence[int], target: int) -> list[int]:
    """Indexes of `sizes` whose sum is the largest one not above `target`; earlier ones are preferred."""
    within = (1 << (target + 1)) - 1
    reachable = [1]  # reachable[i]: bit s is set when some of the first i sizes add up to s
    for size in sizes:
        reachable.append((reachable[-1] | reachable[-1] << size) & within)
        if reachable[-1] >> target:
            break
    left = reachable[-1].bit_length() - 1
    chosen = []
    for index in range(len(reachable) - 2, -1, -1):
        if not reachable[index] >> left & 1:
            chosen.append(index)
            left -= sizes[index]
    return chosen[::-1]


def _as_they_fit(tables: Tables) -> None:
    """Take the documents of a missed goal in their order, each that still fits, if that lacks less."""
    tables.run("create or replace table pooled as from taken")
    tables.run("delete from taken where class in (select class from lacking)")
    query = """
    select class::varchar as class, target, number, units from drawn join lacking using (class)
    order by class, number
    """
    left: dict[str, int] = {}
    for batch in tables.batches(query):
        names, number, units = (np.asarray(batch[name]) for name in ("class", "number", "units"))
        bounds = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
        found = [np.zeros(0, np.int64)]
        for start, stop in pairwise(bounds):
            name, rest = names[start], np.arange(start, stop)
            has = left.setdefault(name, batch["target"][start].as_py())
            while len(rest := rest[units[rest] <= has]):
                ends = np.cumsum(units[rest])
                count = int(np.searchsorted(ends, has, side="right"))
                found.append(rest[:count])
                has -= int(ends[count - 1])
                rest = rest[count:]
            left[name] = has
        rows = np.concatenate(found)
        tables.append("taken", number=number[rows], **{"class": pa.array(names[rows], pa.string())})
    tables.run(_LACKING.format(name="still"))
    tables.run("""
        create or replace table worse as
        select class from still join lacking using (class) where still.missing > lacking.missing
    """)
    tables.run("delete from taken where class in (from worse)")
    tables.run("insert into taken from pooled where class in (from worse)")
