"""Models that won and wait for a person, and what became of them.

    pointers/<channel>/records/held.json

`promote --hold` enters a winner here in the place of moving the champion pointer; `yanmo promote approve` and
`reject` decide about it. An entry pins the comparison it was won in: its evaluation, the verdict, and the
champion of that moment. Once the channel has another champion the comparison says nothing, and the entry is
stale. gc keeps what a waiting entry names until its time is over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from yanmo.store.channel.document import change_document, document_name, parsed, read_document
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore

HELD_SCHEMA = "yanmo.held/1"
HELD = "held"
_MOST_DECIDED = 300
"""Entries that nobody waits for any more; the oldest go first."""
_REFERENCES = ("model", "evaluation", "verdict", "previous", "compared_with", "writing")
State = Literal["waiting", "signed", "approved", "rejected", "withdrawn"]
"""signed: approved by a person, and not yet known to be champion (the approval may have been killed)."""
Standing = Literal["waits", "stale", "expired", "signed", "approved", "rejected", "withdrawn"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model that won, and waits or waited."""

    model: Reference
    evaluation: Reference
    verdict: Reference
    previous: Reference | None
    """The champion it was compared with; None where there was none."""
    compared_with: Reference | None
    """The evaluation of that champion."""
    writing: Reference | None
    """How the model writes, where that was measured."""
    sentence: str
    """What the verdict says, in English."""
    held_at: str
    """UTC, ISO 8601."""
    expires_at: str
    run_id: str = ""
    state: State = "waiting"
    who: str = ""
    why: str = ""
    decided_at: str = ""

    def standing(self, champion: Reference | None, now: float) -> Standing:
        """How it stands.

        Args:
            champion: what the channel's champion pointer names.
            now: Unix seconds.
        """
        is_champion = champion is not None and champion.content_digest == self.model.content_digest
        if self.state == "signed" and is_champion:
            return "approved"
        if self.state == "waiting" or self.state == "signed":
            if self.is_over(now):
                return "expired"
            if _digest(champion) != _digest(self.previous):
                return "stale"
            return "signed" if self.state == "signed" else "waits"
        return self.state

    def is_over(self, now: float) -> bool:
        """Whether its time to be decided about is over."""
        return now >= datetime.fromisoformat(self.expires_at).timestamp()

    def waited(self, now: float) -> float:
        """Seconds since it is held."""
        return max(0.0, now - datetime.fromisoformat(self.held_at).timestamp())

    @property
    def references(self) -> list[Reference]:
        """All that it names."""
        found = (getattr(self, name) for name in _REFERENCES)
        return [one for one in found if one is not None]


@dataclass(frozen=True)
class Held:
    """The entries of a channel, the oldest first."""

    entries: tuple[Entry, ...] = ()

    def of(self, model_digest: str) -> Entry | None:
        """The newest entry of a model."""
        return next((e for e in reversed(self.entries) if e.model.content_digest == model_digest), None)

    def open(self, now: float) -> list[Entry]:
        """Those that a person may still decide about, stale ones among them."""
        return [e for e in self.entries if e.state in ("waiting", "signed") and not e.is_over(now)]

    def waiting(self, champion: Reference | None, now: float) -> list[Entry]:
        """Those that can be approved as they are."""
        return [e for e in self.entries if e.standing(champion, now) in ("waits", "signed")]


def read_held(store: ObjectStore, channel: str) -> Held:
    """Who waits in a channel.

    Raises:
        DataError: the document is damaged, or of another version.
    """
    found = read_document(store, document_name(channel, HELD), HELD_SCHEMA, _held)
    return found or Held()


def parse_held(data: bytes, where: str) -> Held:
    """The document as it was read from `where`; raises as `read_held`."""
    return parsed(data, HELD_SCHEMA, where, _held)


def put(store: ObjectStore, channel: str, entry: Entry, replaces: Callable[[Entry | None], bool]) -> bool:
    """Enter a model in the place of its older entry, if `replaces` says so of that; whether it did."""
    done = False

    def change(found: Held | None) -> dict[str, Any] | None:
        nonlocal done
        entries = found.entries if found else ()
        done = replaces(Held(entries).of(entry.model.content_digest))
        if not done:
            return None
        kept = [e for e in entries if e.model.content_digest != entry.model.content_digest]
        return _values([*kept, entry])

    change_document(store, document_name(channel, HELD), HELD_SCHEMA, _held, change)
    return done


def move(store: ObjectStore, channel: str, entry: Entry, **to: str) -> Entry | None:
    """Change the state of `entry` if it is as it was read; returns it as it is afterwards.

    Returns:
        The changed entry; None where somebody else changed it first.
    """
    changed: Entry | None = None

    def change(found: Held | None) -> dict[str, Any] | None:
        nonlocal changed
        entries = found.entries if found else ()
        if entry not in entries:
            changed = None
            return None
        changed = dataclasses.replace(entry, **to)  # type: ignore[arg-type]
        return _values([changed if e == entry else e for e in entries])

    change_document(store, document_name(channel, HELD), HELD_SCHEMA, _held, change)
    return changed


def days_from(when: str, days: float) -> str:
    """The time `days` after `when`, in the form of records."""
    then = datetime.fromisoformat(when) + timedelta(days=days)
    return then.astimezone(UTC).isoformat(timespec="seconds")


def _values(entries: Sequence[Entry]) -> dict[str, Any]:
    decided = [e for e in entries if e.state not in ("waiting", "signed")]
    gone = decided[: max(0, len(decided) - _MOST_DECIDED)]
    return {"entries": [asdict(e) for e in entries if e not in gone]}


def _held(values: dict[str, Any]) -> Held:
    return Held(tuple(_entries(values["entries"])))


def _entries(listed: Iterable[dict[str, Any]]) -> Iterable[Entry]:
    for values in listed:
        named = {n: Reference.from_dict(values[n]) if values[n] else None for n in _REFERENCES}
        if not (named["model"] and named["evaluation"] and named["verdict"]):
            raise ValueError("an entry lacks its model, evaluation or verdict")
        entry = Entry(**{**values, **named})
        for when in (entry.held_at, entry.expires_at):
            if datetime.fromisoformat(when).tzinfo is None:
                raise ValueError(f"{when[:40]!r}: a time without its zone")
        if entry.state not in ("waiting", "signed", "approved", "rejected", "withdrawn"):
            raise ValueError(f"state {str(entry.state)[:40]!r}")
        yield entry


def _digest(reference: Reference | None) -> str:
    return reference.content_digest if reference else ""
