"""`yanmo store mend`: brings the pointers of a restored store back to what is there.

A copy of a store that was taken while a night ran, or put together of two copies, holds pointers to outputs
that it does not hold. Outputs never change, so what is missing is only ever newer (or lost for good), and the
channel can go on from the newest that is whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from yanmo.common.errors import DataError, ExitCode, StorageError
from yanmo.store.channel.held import Entry, move, read_held
from yanmo.store.manifest import Reference, unsealed
from yanmo.store.objects import MAX_DOCUMENT_BYTES, AlreadyExists, ObjectInfo, ObjectStore
from yanmo.store.output import open_reference
from yanmo.store.pointers import RECORD_SCHEMA, move_pointer
from yanmo.store.runs.run_record import is_run_record, parse_run
from yanmo.store.schema import parse, utc_now
from yanmo.tools.store.inventory import Inventory, is_working, take
from yanmo.tools.store.options import MendOptions
from yanmo.tools.store.pointed import read_all

log = logging.getLogger(__name__)
_CHAMPION = {"champion": "model", "champion_evaluation": "evaluation"}
"""Pointer -> the field of a record of the history that it follows."""
_OF_CHAMPION = "champion_evaluation_"
"""How the pointers begin to what was measured of the champion besides."""
ONE_SET = "restore it: a new evaluation set would let what was tested so far into training"
_TO_BE_WHOLE = ("model", "evaluation", "verdict")


@dataclass
class _Plan:
    """What is to be done in one channel."""

    channel: str
    aside: list[tuple[str, str]] = field(default_factory=list)
    """Names below pointers/ that are moved away, each with what it names that is lost."""
    moves: list[tuple[str, Reference, str]] = field(default_factory=list)
    """Pointer, what it names afterwards, and where that was found."""
    withdrawn: list[tuple[Entry, str]] = field(default_factory=list)
    """Models that wait for a person, each with what it names that is lost."""
    faults: list[str] = field(default_factory=list)


def run(store: ObjectStore, options: MendOptions) -> int:
    inventory = take(store, leftovers=False)
    _check_quiet(store, inventory)
    channels: dict[str, list[ObjectInfo]] = {}
    for info in inventory.pointers:
        channels.setdefault(info.name.split("/")[1], []).append(info)
    there = _There(store)
    plans = [_Channel(store, name, infos, there).plan() for name, infos in sorted(channels.items())]
    folder = f"mended/{utc_now().replace(':', '-').removesuffix('+00-00')}"
    for plan in plans:
        _carry_out(store, plan, folder, options.write)
    count = sum(len(plan.aside) + len(plan.moves) + len(plan.withdrawn) for plan in plans)
    faults = [fault for plan in plans for fault in plan.faults]
    if not count and not faults:
        print("nothing to mend: every pointer and record names what is there")
    elif count and not options.write:
        print(f"{count} change(s) would be made; --write does it")
    for fault in faults:
        log.error("%s", fault)
    return ExitCode.DATA if faults else ExitCode.DONE


def _check_quiet(store: ObjectStore, inventory: Inventory) -> None:
    """Raise StorageError while a run is at work: it moves pointers."""
    for folder in inventory.keys.values():
        if is_working(store, folder):
            raise StorageError(f"a run is making {folder} now; stop it, then run this again")


class _There:
    """Which outputs are whole: the manifest and every file with its size, but what gc let go."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[tuple[str, str, str], str] = {}

    def lost(self, reference: Reference) -> str:
        """What is lost of the output, in words; empty where it is whole."""
        name = reference.stage, reference.key, reference.content_digest
        if name not in self._known:
            try:
                fault = open_reference(self._store, reference).missing() or ""
            except DataError:
                fault = "not there"
            self._known[name] = fault and f"{reference.stage}/{reference.key[:12]}: {fault}"
        return self._known[name]


class _Channel:
    """The files of one channel below pointers/."""

    def __init__(self, store: ObjectStore, name: str, infos: list[ObjectInfo], there: _There) -> None:
        self._store, self._there = store, there
        self._plan = _Plan(name)
        parts = {info.name: info.name.split("/")[2:] for info in infos}
        self._history = sorted((i for i in infos if parts[i.name][0] == "history"), key=lambda i: i.name)
        runs = [info for info in infos if is_run_record(info.name)]
        self._runs = sorted(runs, key=lambda info: info.modified, reverse=True)
        self._pointers = [info for info in infos if len(parts[info.name]) == 1]

    def plan(self) -> _Plan:
        """What to do; nothing is written."""
        champion = self._records()
        lost_champion = False
        for info in self._pointers:
            pointer = info.name.rpartition("/")[2].removesuffix(".json")
            fault = next(
                (f for one in read_all(self._store, [info]) if (f := self._there.lost(one.reference))), ""
            )
            if not fault:
                continue
            lost_champion = lost_champion or pointer == "champion"
            if pointer in _CHAMPION and champion:
                self._plan.moves.append((pointer, champion[_CHAMPION[pointer]], "the history"))
            elif found := self._newest(pointer):
                self._plan.moves.append((pointer, *found))
            elif pointer == "evaluation_set":
                self._plan.faults.append(
                    f"{self._store.uri}/{info.name}: names what is lost: {fault}; {ONE_SET}"
                )
            else:
                self._plan.aside.append((info.name, fault))
        if lost_champion:
            self._drop_what_was_measured_of_it()
        for entry in read_held(self._store, self._plan.channel).open(self._store.clock()):
            fault = next((f for one in entry.references if (f := self._there.lost(one))), "")
            if fault:
                self._plan.withdrawn.append((entry, fault))
        for info in self._runs:
            if fault := self._first_lost(info):
                self._plan.aside.append((info.name, fault))
        return self._plan

    def _drop_what_was_measured_of_it(self) -> None:
        """Pointers to figures of a champion that is another one now; the next night sets them again."""
        moved = {name for name, _ in self._plan.aside}
        for info in self._pointers:
            if info.name.rpartition("/")[2].startswith(_OF_CHAMPION) and info.name not in moved:
                self._plan.moves = [m for m in self._plan.moves if not info.name.endswith(f"/{m[0]}.json")]
                self._plan.aside.append((info.name, "of a champion that is lost"))

    def _records(self) -> dict[str, Reference]:
        """The fields of the newest record that is whole; later ones are to be set aside."""
        newest: dict[str, Reference] = {}
        later: list[tuple[str, str]] = []
        for info in reversed(self._history):
            fields, fault = self._record(info)
            if not fault and not newest:
                newest = fields
            elif fault and not newest:
                later.append((info.name, fault))
            elif fault:
                self._plan.faults.append(
                    f"{self._store.uri}/{info.name}: names what is lost: {fault}; restore it"
                )
        if not newest and later:
            self._plan.faults.append(
                f"channel {self._plan.channel!r} of {self._store.uri}: no champion of its history is whole; "
                "restore one (`yanmo store cp` from another copy), or begin with another channel"
            )
        else:
            self._plan.aside += later
        return newest

    def _record(self, info: ObjectInfo) -> tuple[dict[str, Reference], str]:
        """What a record names, and what of that is lost."""
        named = list(read_all(self._store, [info]))  # checked as everywhere
        values = parse(unsealed(self._store.read(info.name)[0]), RECORD_SCHEMA, MAX_DOCUMENT_BYTES)
        fields = {name: Reference.from_dict(values[name]) for name in _TO_BE_WHOLE if values.get(name)}
        assert named
        return fields, next((f for one in fields.values() if (f := self._there.lost(one))), "")

    def _outputs(self, info: ObjectInfo) -> dict[str, Reference]:
        return parse_run(self._store.read(info.name)[0], f"{self._store.uri}/{info.name}")

    def _newest(self, pointer: str) -> tuple[Reference, str] | None:
        """What the newest run made under this pointer that is whole, and which run that was."""
        for info in self._runs:
            found = self._outputs(info).get(pointer)
            if found and not self._there.lost(found):
                return found, f"run {info.name.rpartition('/')[2].removesuffix('.json')}"
        return None

    def _first_lost(self, info: ObjectInfo) -> str:
        return next((f for one in self._outputs(info).values() if (f := self._there.lost(one))), "")


def _carry_out(store: ObjectStore, plan: _Plan, folder: str, write: bool) -> None:
    """Pointers first, so that a kill leaves a store that the same command mends."""
    for pointer, reference, where in plan.moves:
        print(f"{plan.channel}/{pointer} -> {reference.stage}/{reference.key[:12]} ({where})")
        if write:
            move_pointer(store, plan.channel, pointer, reference)
    for entry, fault in plan.withdrawn:
        print(
            f"{plan.channel}: {entry.model.stage}/{entry.model.key[:12]} waits for a person no more: {fault}"
        )
        if write:
            why = f"yanmo store mend: lost: {fault}"
            move(store, plan.channel, entry, state="withdrawn", why=why, decided_at=utc_now())
    for name, fault in _last_first(plan.aside):
        print(f"set aside {name.removeprefix('pointers/').removesuffix('.json')}: {fault}")
        if write:
            _set_aside(store, name, f"{folder}/{name}")


def _set_aside(store: ObjectStore, name: str, place: str) -> None:
    """Move an object; one that was killed between the two may have been there in this very second."""
    data, _ = store.read(name)
    try:
        store.create(place, data)
    except AlreadyExists:
        if store.read(place)[0] != data:
            raise
    store.delete(name)


def _last_first(aside: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The highest number of a history first: numbers have no gaps, whenever this is killed."""
    yield from sorted(aside, reverse=True)
