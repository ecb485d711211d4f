"""Which documents are in the output, and how often.

By default quotas count characters, not documents: quotas of 50,000 诗, 30,000 词, 20,000 文 and 10,000 赋
would raise prose, whose documents are long, from 69 % to 83 % of all characters in the corpus from which the
bundled one is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.balance.augmentation.augment import Augmenter, Measured, copy_digest
from yanmo.balance.classes import parts_of
from yanmo.balance.document_table import Ints, Rows, TrainFiles
from yanmo.balance.quotas.drawn_order import Words, first_words
from yanmo.balance.quotas.exact import Choice, choose
from yanmo.balance.quotas.targets import OTHERS, Quota, QuotaPlan, Target, parse_plan
from yanmo.balance.token_count import TokenCount
from yanmo.common.disk_arrays import all_rows, joined_arrays, new_array, picked, slices, taken
from yanmo.common.errors import DataError, UsageError
from yanmo.formats.records import GENRE_ALIASES
from yanmo.options.nearest import did_you_mean

_COLUMNS = ("position", "copy", "first", "characters", "tokens")
_MOST_ITEMS = 20_000_000
"""Copies of documents to choose among, at most (0.5 GB)."""


@dataclass(frozen=True, kw_only=True)
class Picked:
    """The documents of the output, copies included. Parallel arrays."""

    position: Ints
    """Index into `Rows`."""
    copy: npt.NDArray[np.unsignedinteger[Any]]
    """Number of the copy: 0 is the document itself."""
    first: Words
    """The first 8 bytes of its id, by which it is ordered."""
    characters: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.position)

    def take(self, rows: Ints) -> Picked:
        """Some of the rows."""
        return Picked(**{name: taken(getattr(self, name), rows) for name in _COLUMNS})


def _joined(parts: list[Picked]) -> Picked:
    """All of `parts`, which it empties: so a column is let go as soon as it is part of the whole one."""
    if len(parts) == 1:
        return parts.pop()
    columns = {name: [getattr(part, name) for part in parts] for name in _COLUMNS}
    parts.clear()
    return Picked(**{name: joined_arrays(columns.pop(name)) for name in _COLUMNS})


def plan_of_classes(quotas: str, groups: Iterable[str], by: str) -> QuotaPlan:
    """`--quotas` with classes spelled as in the documents, and `*` replaced by the classes without a quota.

    Raises:
        UsageError: a quota for an unknown class, two quotas for a class, or none where all need one.
    """
    plan, names = parse_plan(quotas), list(groups)
    found: dict[str, Quota] = {}
    for written, quota in plan.quotas.items():
        name = _spelled(written, names, by)
        if name == OTHERS:
            continue
        if name not in names:
            hint = did_you_mean(written, names)
            raise UsageError(
                f"--quotas: no documents of {by} {written}{hint}; there are {some(names)}: name one of them"
            )
        if name in found:
            raise UsageError(f"--quotas: {name} is named twice: keep one")
        found[name] = quota
    rest = [name for name in names if name not in found]
    if OTHERS in plan.quotas:
        found |= dict.fromkeys(rest, plan.quotas[OTHERS])
    elif plan.is_relative and plan.alpha is None and rest:
        raise UsageError(f"--quotas: no weight for {some(rest)}; name them, or give *=1w (or *=0w)")
    return QuotaPlan(found, plan.alpha)


def _spelled(written: str, names: list[str], by: str) -> str:
    if written in names or written == OTHERS:
        return written
    parts = zip(written.split("/"), parts_of(by), strict=False)
    return "/".join(GENRE_ALIASES.get(value, value) if part == "genre" else value for value, part in parts)


def some(names: Sequence[str]) -> str:
    """The first twenty names, and how many more there are."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(names[:20]) + more


@dataclass(frozen=True)
class Picker:
    """Fills targets: every document of a class once, again ..., then some of them, to what is missing."""

    files: TrainFiles
    rows: Rows
    unit: str
    """characters, documents or tokens."""
    seed: int
    max_repeats: int
    counting: TokenCount
    augmenter: Augmenter | None = None

    def pick(self, targets: Mapping[str, Target]) -> tuple[Picked, dict[str, Choice]]:
        """The documents of the output, by class in the order of names; and class -> what is known of choices.

        Raises:
            DataError: nothing is left.
        """
        parts: list[Picked] = []
        choices: dict[str, Choice] = {}
        for name in sorted(targets):
            part, choices[name] = self._of_class(name, targets[name].units)
            parts.append(part)
            del part  # `_joined` is to hold the only one
        if not sum(map(len, parts)):
            raise DataError("the quotas leave no document in train; raise --quotas")
        return _joined(parts), choices

    def units(self, positions: Ints) -> Ints:
        """Units of each of these documents, unchanged by augmentation."""
        return self._units(taken(self.rows.characters, positions), taken(self.rows.tokens, positions))

    def _units(self, characters: npt.NDArray[np.int32], tokens: npt.NDArray[np.int32]) -> Ints:
        sizes = {"characters": characters, "tokens": tokens, "documents": None}[self.unit]
        found = new_array(len(characters), np.int64)
        for some in slices(len(found)):
            found[some] = 1 if sizes is None else sizes[some]
        return found

    def _of_class(self, name: str, target: int) -> tuple[Picked, Choice]:
        positions, left = self.rows.of_group(name), target
        copies: list[Measured] = []
        found: list[Picked] = []
        choice = Choice(np.arange(0), 0, is_best=True)
        for copy in range(self.max_repeats):
            if left <= 0 and found:
                break
            copies.append(self._measure(positions, copy, copies))
            sizes = self._units(copies[-1].characters, copies[-1].tokens)
            chosen: Ints = all_rows(len(positions)) if left else choice.positions
            if 0 < left < int(sizes.sum()):
                chosen, choice = self._draw(positions, sizes, left)
            left -= int(taken(sizes, chosen).sum())
            found.append(self._part(positions, copies[-1], chosen, copy))
            if len(chosen) < len(positions):
                break
        is_short = left > 0 and len(found[-1]) < len(positions)
        even = _joined(found)
        if is_short and self.max_repeats > 1:
            return self._of_any_copies(positions, target, even, copies)
        return even, Choice(np.arange(0), target - left, choice.is_best, choice.above)

    def _draw(self, positions: Ints, sizes: Ints, target: int) -> tuple[Ints, Choice]:
        """Indexes of `positions` that hold `target` units together, and the choice among those with units."""
        order = self.rows.drawn(positions, self.seed)
        order = picked(order, taken(sizes, order) > 0)
        choice = choose(taken(sizes, order), target)
        return taken(order, choice.positions), choice

    def _of_any_copies(
        self, positions: Ints, target: int, even: Picked, copies: list[Measured]
    ) -> tuple[Picked, Choice]:
        """A choice nearer to the target, in which documents may be repeated unequally often.

        Args:
            even: the choice whose documents are repeated as equally as can be.
            copies: the copies that were measured for it, by number.

        If `even` holds every document of the class, this choice does too. Augmented copies differ from each
        other: they are exchanged for others that were measured, and keep their numbers.
        """
        whole = len(copies) > 1
        fixed = even.take(np.flatnonzero((even.copy == 0) & (whole | (self._units_of(even) == 0))))
        numbers = range(int(whole), len(copies) if self.augmenter else self.max_repeats)
        order = self.rows.drawn(positions, self.seed)
        measured = [copies[number if self.augmenter else 0] for number in numbers]
        sizes = [self._units(one.characters, one.tokens)[order] for one in measured]
        places = [np.flatnonzero(one) for one in sizes]
        goal = target - int(self._units_of(fixed).sum())
        if sum(map(len, places)) > _MOST_ITEMS:
            return even, Choice(np.arange(0), int(self._units_of(even).sum()), is_best=False)
        choice = choose(np.concatenate([one[at] for one, at in zip(sizes, places, strict=True)]), goal)
        choice = choice.with_units(target - goal, is_all=not self.augmenter, keeps_all=whole)
        if choice.units <= int(self._units_of(even).sum()):
            return even, choice
        document = order[np.concatenate(places)[choice.positions]]
        number = np.repeat(numbers, [len(at) for at in places])[choice.positions]
        if not self.augmenter:
            document = np.sort(document)
            number = numbers[0] + np.arange(len(document)) - np.searchsorted(document, document)
        parts = []
        for n in numbers:
            if len(here := document[number == n]):
                copy = copies[n] if n < len(copies) else self._measure(positions, n, copies)
                parts.append(self._part(positions, copy, here, n))
        return _joined([fixed, *parts]), choice

    def _units_of(self, picked: Picked) -> Ints:
        return self._units(picked.characters, picked.tokens)

    def _measure(self, positions: Ints, copy: int, before: list[Measured]) -> Measured:
        """The copies of number `copy` of some documents; `before` are those of lower numbers."""
        rows = self.rows
        if copy and self.augmenter:
            return self.augmenter.measure(self.files, rows, positions, copy, self.counting)
        if copy:
            first = new_array(len(positions), np.uint64)
            for some in slices(len(positions)):
                ids = rows.hex_ids(positions[some])
                each = (int.from_bytes(copy_digest(id, copy)[:8]) for id in ids)
                first[some] = np.fromiter(each, np.uint64, len(positions[some]))
            return Measured(first, before[0].characters, before[0].tokens)
        first = new_array(len(positions), np.uint64)
        for some in slices(len(positions)):
            first[some] = first_words(rows.id[positions[some]])
        return Measured(first, taken(rows.characters, positions), taken(rows.tokens, positions))

    def _part(self, positions: Ints, measured: Measured, chosen: Ints, copy: int) -> Picked:
        copies = new_array(len(chosen), np.min_scalar_type(self.max_repeats))
        copies[:] = copy
        return Picked(
            position=taken(positions, chosen),
            copy=copies,
            first=taken(measured.first, chosen),
            characters=taken(measured.characters, chosen),
            tokens=taken(measured.tokens, chosen),
        )
