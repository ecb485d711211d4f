"""The history of a channel's champions: one numbered record for each change.

    pointers/<channel>/history/000001.json    who became champion, when, by which verdict or by whom and why

Records are numbered without gaps, so that the last one is found without listing, and two writers cannot take
one number. Each is sealed with the sha256 of its own bytes. The pointer to the champion follows the last one:
`follow`, for whoever reads it; promote/history/champion.py makes changes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from yanmo.common.errors import DataError
from yanmo.store.manifest import Reference, sealed, unsealed
from yanmo.store.objects import AlreadyExists, ObjectStore
from yanmo.store.pointers import RECORD_SCHEMA, RECORDED, check_stage, read_pointer, swap_pointer
from yanmo.store.record import Record

log = logging.getLogger(__name__)
CHAMPION = "champion"


@dataclass(frozen=True, kw_only=True)
class RolledBack:
    """A model that a person took down; no verdict promotes it again."""

    model: str
    """Its content digest."""
    when: str
    who: str
    why: str

    def __str__(self) -> str:
        return f"{shown_time(self.when)} by {self.who}: {self.why}"


@dataclass(frozen=True, kw_only=True)
class ChampionRecord:
    """One change of champions."""

    number: int
    champion_since: str
    """UTC, ISO 8601."""
    model: Reference
    evaluation: Reference
    verdict: Reference
    """The verdict that promoted the model; in a rollback's record, the one that did so then."""
    previous: Reference | None
    """The champion before it."""
    compared_with: Reference | None = None
    """The evaluation of the champion before it."""
    kind: Literal["promotion", "rollback"] = "promotion"
    restores: int = 0
    """In a rollback's record: the number of the record whose model is champion again."""
    who: str = ""
    why: str = ""
    rolled_back: tuple[RolledBack, ...] = ()
    """All models that are rolled back at this time."""

    @property
    def since(self) -> str:
        """`champion_since` as a person reads it."""
        return shown_time(self.champion_since)

    def rollback_of(self, content_digest: str) -> RolledBack | None:
        """Return who took this model down, if anybody did."""
        return next((one for one in self.rolled_back if one.model == content_digest), None)


_RECORD = Record(RECORD_SCHEMA, ChampionRecord, "restore it")


def shown_time(when: str) -> str:
    """An ISO 8601 time in UTC as a person reads it."""
    return when.replace("T", " ").removesuffix("+00:00") + " UTC"


def last_record(store: ObjectStore, channel: str) -> ChampionRecord | None:
    """The record of the latest change.

    Raises:
        DataError: it is damaged.
    """
    number = _last_number(store, channel)
    return read_record(store, channel, number) if number else None


def all_records(store: ObjectStore, channel: str) -> list[ChampionRecord]:
    """Every record, the first one first; raises as `last_record`."""
    return [read_record(store, channel, n) for n in range(1, _last_number(store, channel) + 1)]


def read_record(store: ObjectStore, channel: str, number: int) -> ChampionRecord:
    """The record called `number`; raises as `last_record`."""
    name = record_name(channel, number)
    where = f"{store.uri}/{name}"
    try:
        document = unsealed(store.read(name)[0])
    except (ValueError, FileNotFoundError) as error:
        raise DataError(f"{where}: damaged record of a champion: {error}; restore it") from error
    record = _RECORD.parse(document, where)
    if record.number != number:
        raise DataError(f"{where}: it is the record of number {record.number}; restore it")
    for field, stage in RECORDED.items():
        if (reference := getattr(record, field)) is not None:
            check_stage(reference, (stage,), f"{where}: {field}")
    return record


def write_record(store: ObjectStore, channel: str, record: ChampionRecord) -> bool:
    """Append a record; whether its number was free."""
    try:
        store.create(record_name(channel, record.number), sealed(_RECORD.to_json(record).rstrip()))
    except AlreadyExists:
        return False
    return True


def follow(store: ObjectStore, channel: str) -> None:
    """Let the pointer name the model of the last record, also where others change either meanwhile."""
    while True:
        pointed = read_pointer(store, channel, CHAMPION)
        last = last_record(store, channel)  # after the pointer, which nobody moves on before its record
        if last is None or pointed == last.model:
            return
        if pointed != last.previous:
            log.warning(
                "pointer %s of channel %r named %s; it names the last of the history again, %s",
                CHAMPION,
                channel,
                named(pointed),
                named(last.model),
            )
        swap_pointer(store, channel, CHAMPION, pointed, last.model)


def named(reference: Reference | None) -> str:
    """A reference as a person reads it: `train/3f9a0c...`."""
    return f"{reference.stage}/{reference.key[:12]}" if reference else "none"


def record_name(channel: str, number: int) -> str:
    """Return where a record lies."""
    return f"pointers/{channel}/history/{number:06d}.json"


def _last_number(store: ObjectStore, channel: str) -> int:
    """The highest number in use, found by doubling and then by bisection.

    Raises:
        DataError: the next but one is used.
    """

    def used(number: int) -> bool:
        return store.stat(record_name(channel, number)) is not None

    high = 1
    while used(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if used(middle) else (low, middle)
    if used(low + 2):  # numbers have no gaps: a record is lost, and with it perhaps who was taken down
        raise DataError(
            f"{store.uri}/{record_name(channel, low + 1)}: a record of a champion is missing between others; "
            "restore it"
        )
    return low
