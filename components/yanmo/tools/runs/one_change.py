"""Runs that differ in one option alone: what a change of it did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from yanmo.tools.runs.differing import Comparison
from yanmo.tools.runs.gather import Run


@dataclass(frozen=True)
class Change:
    """Runs that are the same in all but the option `name`, the best first."""

    name: str
    numbers: tuple[int, ...]
    """Of the runs, in the order in which they were compared."""


def changes(runs: Sequence[Run], compared: Comparison) -> Iterator[Change]:
    """Each set of measured runs, two or more, in which one option alone differs.

    A run of which something is lost is in none: nobody knows in what it differs.
    """
    means = {n: r.evaluation.mean.value for n, r in enumerate(runs) if r.evaluation and r.is_whole}
    names = [*compared.differing, *compared.in_some]
    values = {n: tuple(compared.identity(n, name) for name in names) for n in means}
    for column, name in enumerate(names):
        groups: dict[tuple[bytes | None, ...], list[int]] = defaultdict(list)
        for number, row in values.items():
            groups[row[:column] + row[column + 1 :]].append(number)
        for group in groups.values():
            if len({values[number][column] for number in group}) > 1:
                yield Change(name, tuple(sorted(group, key=lambda number: means[number])))
