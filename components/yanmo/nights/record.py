"""What is known of one night, gathered as its stages end: nights/<channel>/runs/<run>.json.

Each stage of a run says when it begins its work, and how it ended: done, paused, failed. The verdict says the
rest. How the night stands follows from that, here alone. A stage that was killed says nothing more; who sees
the channel next finds that (overdue.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import DataError, wrong_in
from yanmo.nights.changing import Values, change, read_document
from yanmo.nights.night import (
    BEGUN,
    MOST_LINES,
    MOST_OF_A_LINE,
    Row,
    Words,
    finite,
    iso,
    plain,
)
from yanmo.nights.places import record_name
from yanmo.store.objects import ObjectStore
from yanmo.store.schema import utc_now

SCHEMA = "yanmo.night/1"
WORKING, DONE, PAUSED, FAILED, GIVEN_UP = "working", "done", "paused", "failed", "given up"
_MOST_STAGES = 40


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """How a stage of a night stands."""

    task: str
    """`train`, `evaluate`, `evaluate-champion`."""
    state: str
    sentence: Words = field(default_factory=Words)
    lines: tuple[str, ...] = ()
    """The card of a failure."""
    key: str = ""
    """What it works on: its lease says whether it still does."""
    stage: str = ""
    seconds: float = 0.0
    """How long the process that says so has worked; 0 where it only begins, or where another says it."""


def record_end(
    store: ObjectStore, channel: str, run_id: str, date: str, timezone: str, end: StageEnd
) -> Values:
    """Enter how a stage of a run stands; gives the record as it is then.

    Args:
        date: of the night, used where this is the first that is said of it.

    Raises:
        StorageError, DataError: as `change`.
    """

    def with_end(values: Values) -> Values:
        values = _begun(values, channel, run_id, date, timezone)
        stages = dict(values["stages"])
        before = stages.get(end.task, {})
        stages[end.task] = {
            "state": end.state,
            "stage": end.stage or end.task,
            "key": end.key or before.get("key", ""),
            "at": utc_now(),
            "sentence": vars(Words.of(vars(end.sentence))),
            "lines": [plain(line, MOST_OF_A_LINE) for line in end.lines[:MOST_LINES]],
            "seconds": round(before.get("seconds", 0.0) + end.seconds, 1),
        }
        values["stages"] = dict(list(stages.items())[-_MOST_STAGES:])
        return _judged(values)

    return change(store, record_name(channel, run_id), SCHEMA, with_end)


def record_verdict(
    store: ObjectStore, channel: str, run_id: str, date: str, timezone: str, found: Mapping[str, Any]
) -> Values:
    """Enter what the night's verdict says, or what a person or the pipeline decided of it.

    Args:
        found: some of `state`, `sentence`, `bits`, `gain`, `verse`, `genre`, `page` (see `Row`).
    """

    def with_verdict(values: Values) -> Values:
        values = _begun(values, channel, run_id, date, timezone)
        values["verdict"] = {**values.get("verdict", {}), **_plain(found)}
        return _judged(values)

    return change(store, record_name(channel, run_id), SCHEMA, with_verdict)


def _plain(found: Mapping[str, Any]) -> Values:
    """What a verdict says, with texts that every reader of JSON, HTML and XML takes."""
    shown = {name: plain(value) if isinstance(value, str) else value for name, value in found.items()}
    return {**shown, **({"sentence": vars(Words.of(found["sentence"]))} if "sentence" in found else {})}


def _begun(values: Values, channel: str, run_id: str, date: str, timezone: str) -> Values:
    if values:
        return values
    now = utc_now()
    said = {"channel": channel, "run_id": plain(run_id, 200), "date": date, "timezone": timezone}
    return {**said, "began": now, "changed": now, "state": BEGUN, "stages": {}}


def _judged(values: Values) -> Values:
    """The record with the state that follows from what was said."""
    state = _state(values)
    if state != values["state"]:
        values["changed"] = utc_now()
    return {**values, "state": state}


def _state(values: Values) -> str:
    states = [stage["state"] for stage in values["stages"].values()]
    decided = str(values.get("verdict", {}).get("state", ""))
    if decided:  # of promote, which comes last, or of who ended the night in its place
        return decided
    for state in (GIVEN_UP, FAILED):
        if state in states:
            return state
    return "paused" if PAUSED in states else BEGUN


def row_of(values: Values) -> Row:
    """The night on the index.

    Raises:
        ValueError, KeyError, TypeError: the record is damaged.
    """
    verdict, stages = values.get("verdict", {}), values["stages"]
    seconds = sum(float(stage.get("seconds", 0.0)) for stage in stages.values())
    lines = _last(values)["lines"] if values["state"] in (GIVEN_UP, FAILED) else ()
    return Row.of(
        {**verdict, **values, "sentence": _sentence(values), "seconds": seconds, "lines": list(lines)}
    )


def _sentence(values: Values) -> dict[str, str]:
    """What a person reads first: the verdict's words, else those of the stage that ended last so."""
    verdict = values.get("verdict", {})
    if verdict.get("sentence"):
        return dict(verdict["sentence"])
    said = _last(values).get("sentence", {})
    return dict(said) if any(said.values()) else {"en": "It goes on.", "zh": "正在进行。"}


def _last(values: Values) -> Values:
    """What the stage said that ended last so as the run stands."""
    of_state = values["state"] if values["state"] in (GIVEN_UP, FAILED, PAUSED) else WORKING
    found = [stage for stage in values["stages"].values() if stage["state"] == of_state]
    return dict(max(found, key=lambda stage: str(stage["at"]), default={"lines": []}))


def read_record(store: ObjectStore, channel: str, run_id: str) -> Values | None:
    """What is known of a night; None for nothing. Raises DataError where it is damaged, or no such record."""
    name = record_name(channel, run_id)
    values = read_document(store, name, SCHEMA)
    return None if values is None else checked(values, f"{store.uri}/{name}")


def checked(values: Values, where: str) -> Values:
    """A record that was read from `where`, once all that its readers rely on is there.

    Raises:
        DataError: it is not, or not of its kind.
    """
    try:
        row_of(values)
        for stage in values["stages"].values():
            _check_stage(stage)
        _check_texts(values, "channel", "run_id", "timezone", "state")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{where}: no record of a night: {wrong_in(error)}; restore it, or delete it"
        ) from error
    return values


def _check_stage(stage: Values) -> None:
    """Raise ValueError, KeyError, TypeError or AttributeError where it is not as `record_end` writes it."""
    _check_texts(stage, "key", "state", "stage", "at")
    _check_texts(stage["sentence"], "en", "zh")
    iso(stage["at"])
    if not all(isinstance(line, str) for line in stage["lines"]):
        raise ValueError("a line is no text")
    if finite(stage["seconds"]) is None:
        raise ValueError("the time is no number")


def _check_texts(values: Values, *names: str) -> None:
    for name in names:
        if not isinstance(values[name], str):
            raise ValueError(f"{name} is no text")
