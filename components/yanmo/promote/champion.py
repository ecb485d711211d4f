"""The crown of a channel: a pointer to a model, moved by compare-and-swap, and its history.

    pointers/<channel>/champion.json          reference of the champion's model
    pointers/<channel>/history/000001.json    who was crowned, when, by which verdict

The pointer counts; a record is written after it moved. A run killed in between is healed by the next one,
which finds its challenger crowned and the record missing. Records are numbered without gaps, so that the last
one is found without listing, and two writers cannot take one number.
"""

from __future__ import annotations

import datetime
import json
import logging
from dataclasses import asdict, dataclass
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.store.manifest import Reference, sealed, unsealed
from yanmo.common.store.objects import AlreadyExists, ObjectStore
from yanmo.common.store.output import Output, open_reference
from yanmo.common.store.pointers import move_pointer, open_named, pointer_name, read_pointer, swap_pointer

log = logging.getLogger(__name__)
CHAMPION = "champion"
CHAMPION_EVALUATION = "champion_evaluation"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One coronation."""

    number: int
    crowned_at: str
    """UTC, ISO 8601."""
    model: Reference
    evaluation: Reference
    verdict: Reference
    previous: Reference | None
    """The champion before it."""
    compared_with: Reference | None
    """The evaluation of the champion before it."""

    @property
    def since(self) -> str:
        """`crowned_at` as a person reads it."""
        return self.crowned_at.replace("T", " ").removesuffix("+00:00") + " UTC"


def check_model(model: Output, who: str) -> None:
    """Verify every file of a model.

    Raises:
        DataError: names the damaged file; says that no pointer was moved.
    """
    try:
        model.paths("*")
    except DataError as error:
        raise DataError(f"the {who}'s model is damaged, and the champion stays as it is: {error}") from error


def read_champion(store: ObjectStore, channel: str) -> tuple[Reference, Output] | None:
    """The champion pointer of a channel and the model it names, all of its files verified.

    Raises:
        DataError: the model is gone or damaged.
    """
    reference = read_pointer(store, channel, CHAMPION)
    if reference is None:
        return None
    model = open_named(store, reference, pointer_name(channel, CHAMPION))
    check_model(model, "champion")
    return reference, model


def last_record(store: ObjectStore, channel: str) -> Record | None:
    """The record of the latest coronation."""
    number = _last_number(store, channel)
    if not number:
        return None
    name = _record_name(channel, number)
    try:
        values = json.loads(unsealed(store.read(name)[0]))
        fixed = {field: Reference(**values[field]) for field in ("model", "evaluation", "verdict")}
        before, compared = (
            Reference(**values[field]) if values[field] else None for field in ("previous", "compared_with")
        )
        when = str(values["crowned_at"])
        return Record(number=number, crowned_at=when, **fixed, previous=before, compared_with=compared)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{store.uri}/{name}: damaged record of a champion: {error!r}; restore it") from error


def _record_name(channel: str, number: int) -> str:
    return f"pointers/{channel}/history/{number:06d}.json"


def _last_number(store: ObjectStore, channel: str) -> int:
    """The highest number in use: doubled until it is free, then halved in."""

    def used(number: int) -> bool:
        return store.stat(_record_name(channel, number)) is not None

    high = 1
    while used(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if used(middle) else (low, middle)
    return low


@dataclass(frozen=True, kw_only=True)
class Coronation:
    """Everything a record names, of the challenger that a verdict would crown."""

    model: Output
    evaluation: Output
    verdict: Output
    previous: Reference | None
    """What the champion pointer named when they were compared."""
    compared_with: Output | None


def crown(store: ObjectStore, channel: str, coronation: Coronation) -> Record:
    """Make the challenger champion, unless the pointer has moved since they were compared.

    Raises:
        DataError: it has; another promote was faster.
    """
    if not swap_pointer(store, channel, CHAMPION, coronation.previous, coronation.model.reference):
        now = read_pointer(store, channel, CHAMPION)
        if now is None or now.content_digest != coronation.model.content_digest:
            raise DataError(
                f"channel {channel!r} got another champion meanwhile ({_named(now)}); nothing was moved. Run "
                "evaluate for that model and promote again"
            )
    return settle(store, channel, coronation)


def settle(store: ObjectStore, channel: str, coronation: Coronation) -> Record:
    """Complete what belongs to a crowned model: its record, and the pointer to its evaluation."""
    record = last_record(store, channel)
    if record is None or record.model.content_digest != coronation.model.content_digest:
        record = _append(store, channel, coronation, record)
    pointer = read_pointer(store, channel, CHAMPION_EVALUATION)
    if pointer is None or not _measures(store, pointer, coronation.model):
        move_pointer(store, channel, CHAMPION_EVALUATION, coronation.evaluation.reference)
    return record


def _append(store: ObjectStore, channel: str, coronation: Coronation, last: Record | None) -> Record:
    number = last.number + 1 if last else 1
    previous = coronation.previous
    if previous and previous.content_digest == coronation.model.content_digest:  # healing: it is crowned
        previous = last.model if last else None
    record = Record(
        number=number,
        crowned_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        model=coronation.model.reference,
        evaluation=coronation.evaluation.reference,
        verdict=coronation.verdict.reference,
        previous=previous,
        compared_with=coronation.compared_with.reference if coronation.compared_with else None,
    )
    values: dict[str, Any] = {"schema": "yanmo.coronation/1", **asdict(record)}
    try:
        store.create(_record_name(channel, number), sealed(json.dumps(values, indent=1).encode()))
    except AlreadyExists:  # another run of the same promotion wrote it
        found = last_record(store, channel)
        assert found is not None
        return found
    return record


def _measures(store: ObjectStore, evaluation: Reference, model: Output) -> bool:
    try:
        measured = open_reference(store, evaluation).input("model")
    except DataError as error:
        log.warning("pointer %s names nothing readable (%s); moving it", CHAMPION_EVALUATION, error)
        return False
    return measured is not None and measured.content_digest == model.content_digest


def _named(reference: Reference | None) -> str:
    return f"{reference.stage}/{reference.key[:12]}" if reference else "none"
