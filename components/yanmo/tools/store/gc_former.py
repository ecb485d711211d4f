"""How much of an output is still needed: with `--former-data`, less of what only former champions rest on.

A former champion is one whose successor's record in the history is older than the age given. Its model,
evaluation and verdict stay, as do manifest, options and reports of all that they rest on. What goes is the
data below (store/let_go.py), where nothing else needs that: no pointer, no run of the newest nights, no live
or unfinished run, no younger champion.

Verdicts name the champion that they were compared with, and a champion may have begun from a former one, so
whatever is kept leads to former champions sooner or later. Their data is not needed by that, but for the
curated texts of the models that a kept one began from: its evaluation looks for copies in them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from enum import IntEnum

from yanmo.store.manifest import Manifest, Reference
from yanmo.tools.store.inventory import KeyName
from yanmo.tools.store.pointed import Named


class Need(IntEnum):
    """How much of an output, and of all that it rests on, something needs."""

    RECORD = 0
    """Not its data."""
    TEXTS = 1
    """Of its data only the curated texts."""
    DATA = 2
    """All."""


class Former:
    """What the records of former champions name, and no record of another champion."""

    def __init__(self, named: Iterable[Named], is_old: Callable[[float], bool]) -> None:
        """Args:
        named: all that is named below pointers/.
        is_old: whether a champion that was replaced at this time is a former one here.
        """
        written: dict[str, dict[int, float]] = defaultdict(dict)
        by_record: dict[tuple[str, int], set[KeyName]] = defaultdict(set)
        for one in named:
            if one.champion is not None:
                channel, number = one.champion
                written[channel][number] = one.modified
                if not one.is_before:
                    by_record[one.champion].add(_name(one.reference))
        self._records = {
            (channel, number)
            for channel, times in written.items()
            for number in times
            if any(other > number and is_old(time) for other, time in times.items())
        }
        names = {name for record in self._records for name in by_record[record]}
        self.names = names - {n for record in by_record.keys() - self._records for n in by_record[record]}

    def need_of(self, named: Named) -> Need:
        """How much a file below pointers/ needs of what it names."""
        if named.champion in self._records:
            return Need.RECORD
        return self.passed_on(Need.DATA, "", named.reference) if named.is_before else Need.DATA

    def passed_on(self, need: Need, stage: str, reference: Reference) -> Need:
        """How much an output of `stage`, of which `need` is needed, needs of what it was made from."""
        if need is not Need.DATA or _name(reference) not in self.names:
            return need
        return Need.TEXTS if stage == reference.stage == "train" else Need.RECORD


def needs_data(need: Need, manifest: Manifest) -> bool:
    """Whether the data of this very output is needed."""
    return need is Need.DATA or (need is Need.TEXTS and manifest.stage == "curate")


def _name(reference: Reference) -> KeyName:
    return reference.stage, reference.key
