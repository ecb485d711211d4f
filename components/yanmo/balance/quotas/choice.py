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
from yanmo.balance.quotas.filling import choose
from yanmo.balance.quotas.targets import OTHERS, Quota, QuotaPlan, Target, parse_plan
from yanmo.balance.token_count import TokenCount
from yanmo.common.disk_arrays import all_rows, joined_arrays, new_array, picked, slices, taken
from yanmo.common.errors import DataError, UsageError
from yanmo.formats.records import GENRE_ALIASES
from yanmo.options.nearest import did_you_mean

_COLUMNS = ("position", "copy", "first", "characters", "tokens")


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
        """Return some of the rows."""
        return Picked(**{name: taken(getattr(self, name), rows) for name in _COLUMNS})


def _joined(parts: list[Picked]) -> Picked:
    """Return all of `parts`, which it empties, so that no column is in memory twice."""
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
    """Return the first twenty names, and how many more there are."""
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

    def pick(self, targets: Mapping[str, Target]) -> Picked:
        """Return the documents of the output, by class in the order of names.

        Raises:
            DataError: nothing is left.
        """
        parts: list[Picked] = []
        for name in sorted(targets):
            parts.append(self._of_class(name, targets[name].units))
        if not sum(map(len, parts)):
            raise DataError("the quotas leave no document in train; raise --quotas")
        return _joined(parts)

    def units(self, positions: Ints) -> Ints:
        """Units of each of these documents, unchanged by augmentation."""
        return self._units(taken(self.rows.characters, positions), taken(self.rows.tokens, positions))

    def _units(self, characters: npt.NDArray[np.int32], tokens: npt.NDArray[np.int32]) -> Ints:
        sizes = {"characters": characters, "tokens": tokens, "documents": None}[self.unit]
        found = new_array(len(characters), np.int64)
        for some in slices(len(found)):
            found[some] = 1 if sizes is None else sizes[some]
        return found

    def _of_class(self, name: str, target: int) -> Picked:
        positions, left = self.rows.of_group(name), target
        copies: list[Measured] = []
        found: list[Picked] = []
        for copy in range(self.max_repeats):
            if left <= 0 and found:
                break
            copies.append(self._measure(positions, copy, copies))
            sizes = self._units(copies[-1].characters, copies[-1].tokens)
            chosen: Ints = all_rows(len(positions)) if left else np.arange(0)
            if 0 < left < int(sizes.sum()):
                chosen = self._draw(positions, sizes, left)
            left -= int(taken(sizes, chosen).sum())
            found.append(self._part(positions, copies[-1], chosen, copy))
            if len(chosen) < len(positions):
                break
        return _joined(found)

    def _draw(self, positions: Ints, sizes: Ints, target: int) -> Ints:
        """Indexes of `positions` that hold `target` units together, among those with units."""
        order = self.rows.drawn(positions, self.seed)
        order = picked(order, taken(sizes, order) > 0)
        return taken(order, choose(taken(sizes, order), target))

    def _measure(self, positions: Ints, copy: int, before: list[Measured]) -> Measured:
        """Return the copies of number `copy` of some documents; `before` are those of lower numbers."""
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
