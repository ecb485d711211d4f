"""Texts that a channel took down: no later run of it reads them again, whatever flags that run forgets.

    pointers/<channel>/records/takedown.json

`yanmo channel takedown` adds to it; nothing removes from it. `curate` leaves these texts and all their copies
out, `train` refuses a token cache that holds one, `promote` replaces a champion that learned one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from yanmo.store.channel.document import change_document, document_name, read_document
from yanmo.store.objects import ObjectStore
from yanmo.store.schema import utc_now

TAKEDOWN_SCHEMA = "yanmo.takedown/1"
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


def read_takedown(store: ObjectStore, channel: str) -> dict[str, TakenDown]:
    """Id -> who took it down; empty where nobody took anything down.

    Raises:
        DataError: the list is damaged, or of a later version.
    """
    found = read_document(store, document_name(channel, TAKEDOWN), TAKEDOWN_SCHEMA, _entries)
    return found or {}


def take_down(store: ObjectStore, channel: str, ids: Iterable[str], *, who: str, why: str) -> list[str]:
    """Add texts to the list; returns those that were not in it before."""
    added: list[str] = []

    def change(found: dict[str, TakenDown] | None) -> dict[str, Any] | None:
        entries = dict(found or {})
        added[:] = [one for one in dict.fromkeys(ids) if one not in entries]
        entries |= {one: TakenDown(id=one, who=who, why=why, when=utc_now()) for one in added}
        return {"entries": [asdict(entry) for entry in entries.values()]} if added else None

    change_document(store, document_name(channel, TAKEDOWN), TAKEDOWN_SCHEMA, _entries, change)
    return added


def _entries(values: dict[str, Any]) -> dict[str, TakenDown]:
    found = [TakenDown(**one) for one in values["entries"]]
    for entry in found:
        if not all(isinstance(text, str) for text in vars(entry).values()) or not _ID.match(entry.id):
            raise ValueError(f"{str(entry.id)[:80]!r}: expected an id of 64 hexadecimal digits")
    return {entry.id: entry for entry in found}
