"""Texts that a channel took down: no later run of it reads them again, whatever flags that run forgets.

    pointers/<channel>/records/takedown.json

`yanmo channel takedown` adds to it, and with --lift takes a text off again: a mistake, or a claim that was
withdrawn. Who did either, when and why stays. `curate` leaves the texts of the list and all their copies out,
`train` refuses a token cache that holds one, `promote` replaces a champion that learned one.

A list from which nothing was ever taken off is written as the version before wrote it. One with such entries
has another schema, so that a version that would lose them does not write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from yanmo.common.errors import DataError
from yanmo.store.channel.document import change_document, document_name, read_document
from yanmo.store.objects import ObjectStore
from yanmo.store.schema import utc_now

TAKEDOWN_SCHEMA = "yanmo.takedown/2"
TAKEDOWN = "takedown"
_ID = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, kw_only=True)
class TakenDown:
    """One text."""

    id: str
    who: str
    why: str
    when: str
    """UTC, ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class Lifted:
    """A takedown that was taken back."""

    takedown: TakenDown
    who: str
    why: str
    when: str


@dataclass(frozen=True)
class Takedowns:
    """The list of a channel."""

    entries: tuple[TakenDown, ...] = ()
    """What no run may read, the oldest first."""
    lifted: tuple[Lifted, ...] = ()
    """What was taken off again, the oldest first; a text may be here more than once."""

    @property
    def by_id(self) -> dict[str, TakenDown]:
        """Id -> its entry, of what no run may read."""
        return {entry.id: entry for entry in self.entries}

    def lift_of(self, id: str) -> Lifted | None:
        """How a text came off the list last, if it ever did."""
        return next((one for one in reversed(self.lifted) if one.takedown.id == id), None)


def read_takedowns(store: ObjectStore, channel: str) -> Takedowns:
    """The whole list; empty where nobody took anything down.

    Raises:
        DataError: it is damaged, or of another version.
    """
    found = read_document(store, document_name(channel, TAKEDOWN), TAKEDOWN_SCHEMA, _takedowns)
    return found or Takedowns()


def read_takedown(store: ObjectStore, channel: str) -> dict[str, TakenDown]:
    """Id -> who took it down, of what no run may read; raises as `read_takedowns`."""
    return read_takedowns(store, channel).by_id


def take_down(store: ObjectStore, channel: str, ids: Iterable[str], *, who: str, why: str) -> list[str]:
    """Add texts to the list; returns those that were not in it before."""
    added: list[str] = []

    def change(found: Takedowns | None) -> dict[str, Any] | None:
        now = found or Takedowns()
        known = now.by_id
        added[:] = [one for one in dict.fromkeys(ids) if one not in known]
        new = (TakenDown(id=one, who=who, why=why, when=utc_now()) for one in added)
        return _values(Takedowns((*now.entries, *new), now.lifted)) if added else None

    _change(store, channel, change)
    return added


def lift(store: ObjectStore, channel: str, ids: Iterable[str], *, who: str, why: str) -> list[str]:
    """Take texts off the list, all or none; returns those that were on it until now.

    Raises:
        DataError: one was never on it.
    """
    gone: list[str] = []

    def change(found: Takedowns | None) -> dict[str, Any] | None:
        now, asked = found or Takedowns(), list(dict.fromkeys(ids))
        known = now.by_id
        for one in asked:
            if one not in known and now.lift_of(one) is None:
                raise DataError(
                    f"{one} was never on the takedown list of channel {channel!r} of {store.uri}; nothing "
                    "was changed. yanmo channel takedown shows the list"
                )
        gone[:] = [one for one in asked if one in known]
        new = (Lifted(takedown=known[one], who=who, why=why, when=utc_now()) for one in gone)
        kept = tuple(entry for entry in now.entries if entry.id not in gone)
        return _values(Takedowns(kept, (*now.lifted, *new))) if gone else None

    _change(store, channel, change)
    return gone


def _change(store: ObjectStore, channel: str, change: Any) -> None:
    change_document(store, document_name(channel, TAKEDOWN), TAKEDOWN_SCHEMA, _takedowns, change)


def _values(list: Takedowns) -> dict[str, Any]:
    return {
        "entries": [asdict(entry) for entry in list.entries],
        "lifted": [asdict(one) for one in list.lifted],
    }


def _takedowns(values: dict[str, Any]) -> Takedowns:
    entries = tuple(_entry(one) for one in values["entries"])
    lifted = tuple(Lifted(**{**one, "takedown": _entry(one["takedown"])}) for one in values["lifted"])
    if not all(isinstance(text, str) for one in lifted for text in (one.who, one.why, one.when)):
        raise ValueError("lifted: expected texts")
    return Takedowns(entries, lifted)


def _entry(values: dict[str, Any]) -> TakenDown:
    entry = TakenDown(**values)
    if not all(isinstance(text, str) for text in vars(entry).values()) or not _ID.match(entry.id):
        raise ValueError(f"{str(entry.id)[:80]!r}: expected an id of 64 hexadecimal digits")
    return entry
