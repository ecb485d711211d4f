"""The champion of a channel: the model of the last record of its history, which a pointer follows.

    pointers/<channel>/history/         one numbered record for each change (champion_records.py)
    pointers/<channel>/champion.json    reference of the champion's model, for all who read it

The history counts. A change is the record with the next number, written only if nobody has taken that number
since the change was decided on: else it ends with `ChampionChanged`, and nothing moves. The pointer is moved
after it. Where a run is killed in between, the next run, rollback or set of the channel moves it. A
channel without a history may have a pointer (`yanmo store cp`); then that model is its champion.
"""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.common.errors import DataError, StorageError
from yanmo.store.champion_records import (
    CHAMPION,
    ChampionRecord,
    follow,
    last_record,
    named,
    write_record,
)
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.pointers import open_named, place_flags, pointer_name, read_pointer
from yanmo.store.record import utc_now


class ChampionChanged(StorageError):
    """The channel got another champion while this run compared; compare again."""


def check_model(model: Output, who: str, advice: str = "") -> None:
    """Verify every file of a model.

    Raises:
        DataError: names the damaged file; says that no pointer was moved.
    """
    try:
        model.paths("*")
        missing = model.missing()  # the bucket's objects, of which this machine may only hold copies
        if missing:
            raise DataError(f"{missing}; run the train stage again with --force, or restore the file")
    except DataError as error:
        raise DataError(
            f"the {who}'s model is damaged, and the champion stays as it is: {error}{advice}"
        ) from error


def champion_of(store: ObjectStore, channel: str) -> tuple[Reference | None, ChampionRecord | None]:
    """Return a channel's champion, and the last record of its history.

    Raises:
        DataError: the pointer or the record is damaged.
    """
    pointed = read_pointer(store, channel, CHAMPION)
    last = last_record(store, channel)
    return (last.model if last else pointed), last


def open_champion(store: ObjectStore, channel: str, champion: Reference) -> Output:
    """Open the champion's model, all of its files verified.

    Raises:
        DataError: the model is gone or damaged; says how to go on.
    """
    back = (
        ". Or bring the champion before it back: `yanmo promote rollback --why damaged "
        f"{place_flags(store, channel)}`"
    )
    try:
        model = open_named(store, champion, pointer_name(channel, CHAMPION))
    except DataError as error:
        raise DataError(f"the champion of channel {channel!r} cannot be read: {error}{back}") from error
    check_model(model, "champion", back)
    return model


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """The challenger that a verdict would promote, and all that its record names."""

    model: Output
    evaluation: Output
    verdict: Output
    previous: Reference | None
    """The champion when they were compared."""
    last: ChampionRecord | None
    """The end of the history then."""
    compared_with: Output | None
    """The evaluation of that champion."""
    who: str = ""
    """Who set it by hand, where a person did (setting.py)."""
    why: str = ""


def make_champion(store: ObjectStore, channel: str, promotion: Promotion) -> ChampionRecord:
    """Make the challenger champion, unless the history has gone on since they were compared.

    Raises:
        ChampionChanged: it has, as another promote or a rollback was faster; or a person took the model down.
    """
    model, last = promotion.model.reference, promotion.last
    if found := last.rollback_of(model.content_digest) if last else None:
        raise ChampionChanged(
            f"{named(model)} is not champion of channel {channel!r}: it was taken down {found}. To take that "
            f"back: yanmo promote rollback --to NUMBER {place_flags(store, channel)} (yanmo promote history "
            "has the numbers)"
        )
    record = ChampionRecord(
        number=last.number + 1 if last else 1,
        champion_since=utc_now(),
        model=model,
        evaluation=promotion.evaluation.reference,
        verdict=promotion.verdict.reference,
        previous=promotion.previous,
        compared_with=promotion.compared_with.reference if promotion.compared_with else None,
        who=promotion.who,
        why=promotion.why,
        rolled_back=last.rolled_back if last else (),
    )
    return append(store, channel, record)


def append(store: ObjectStore, channel: str, record: ChampionRecord) -> ChampionRecord:
    """Enter a change into the history and let the pointer follow; return the record that says so.

    Raises:
        ChampionChanged: the history went on with another model; nothing was moved.
    """
    if not write_record(store, channel, record):
        last = last_record(store, channel)
        if last is None or (last.number, last.kind, last.model) != (record.number, record.kind, record.model):
            raise ChampionChanged(
                f"channel {channel!r} got another champion meanwhile ({named(last.model if last else None)});"
                " nothing was moved. Look at `yanmo promote history`; the same command compares with that one"
            )
        record = last  # the same model by another run, or by this one, whose answer was lost
    follow(store, channel)
    return record
