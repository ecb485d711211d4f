"""What a run's stages made or found, so that a later command can take its inputs from that run.

    <store>/pointers/<channel>/runs/<run id>.json

Pointers name a channel's latest outputs; this names those of one run, new or found, under the names of the
pointers that it moved, and when; and which stage paused. `--inputs run:ID` reads the first, `yanmo status
--serve` the rest. gc keeps what a young record names, or one of the newest `--keep-runs` of a channel, and
removes the others.

Cost: one small object read and written at the end of each stage that has a run id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from yanmo.common.errors import DataError, StorageError, wrong_in
from yanmo.store.manifest import Reference
from yanmo.store.objects import AlreadyExists, Changed, ObjectStore
from yanmo.store.pause import PausedOutput
from yanmo.store.schema import LaterSchema, parse, utc_now

RUN_SCHEMA = "yanmo.run/1"
_MAX_BYTES = 262_144
_TRIES = 20
_NAME = re.compile(r"pointers/[^/]+/runs/[^/]+\.json\Z")


@dataclass(frozen=True)
class RunEvents:
    """When a run did what: Unix seconds, by the clocks of its pods."""

    ended: dict[str, float]
    """Pointer -> when its stage ended well; those of records of earlier versions are missing."""
    paused: dict[str, float]
    """Stage -> when it paused as planned: its own hours were over."""


def run_record_name(channel: str, run_id: str) -> str:
    """Where the record of a run lies."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in run_id)
    return f"pointers/{channel}/runs/{safe[:100]}.json"


def is_run_record(name: str) -> bool:
    """Whether an object of the store is such a record, by its name."""
    return _NAME.match(name) is not None


def read_run(store: ObjectStore, channel: str, run_id: str) -> dict[str, Reference] | None:
    """Pointer -> what the run's stage made or found; None where no such run is recorded.

    Raises:
        DataError: the record is damaged.
    """
    name = run_record_name(channel, run_id)
    try:
        data, _ = store.read(name)
    except FileNotFoundError:
        return None
    return parse_run(data, f"{store.uri}/{name}")


def parse_run(data: bytes, where: str) -> dict[str, Reference]:
    """What a record says that was read from `where`; raises as `read_run`."""
    try:
        return {name: Reference.from_dict(value) for name, value in _values(data, where)["outputs"].items()}
    except ValueError as error:
        raise _damaged(where, error) from error


def parse_events(data: bytes, where: str) -> RunEvents:
    """When the run of that record did what; raises as `read_run`."""
    values = _values(data, where)
    try:
        paused = {stage: each["at"] for stage, each in values.get("paused", {}).items() if each["is_planned"]}
        return RunEvents(ended=_times(values.get("ended", {})), paused=_times(paused))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise _damaged(where, error) from error


def _times(said: Mapping[str, str]) -> dict[str, float]:
    found = {name: datetime.fromisoformat(at) for name, at in said.items()}
    return {name: (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() for name, at in found.items()}


def _values(data: bytes, where: str) -> dict[str, Any]:
    try:
        values = parse(data, RUN_SCHEMA, _MAX_BYTES)
        if not isinstance(values.get("outputs"), dict):
            raise ValueError("lacks outputs")
    except LaterSchema as error:
        raise DataError(f"{where}: {error}") from error
    except ValueError as error:
        raise _damaged(where, error) from error
    return values


def _damaged(where: str, error: Exception) -> DataError:
    return DataError(
        f"{where}: damaged: {wrong_in(error)}; delete it: only `--inputs run:ID` and `yanmo status --serve` "
        "read it"
    )


def add_to_run(store: ObjectStore, channel: str, run_id: str, outputs: Mapping[str, Reference]) -> None:
    """Record what a stage of the run made or found; two of them may do so at once.

    Raises:
        StorageError: it changed under every try.
        DataError: what is there is damaged.
    """

    def with_outputs(values: dict[str, Any]) -> None:
        before = values["outputs"]
        values["outputs"] = dict(sorted({**before, **{n: asdict(r) for n, r in outputs.items()}}.items()))
        now = utc_now()
        for name in outputs:
            values.setdefault("paused", {}).pop(name, None)
            if values["outputs"][name] != before.get(name) or name not in values.get("ended", {}):
                values.setdefault("ended", {})[name] = now

    _change(store, channel, run_id, with_outputs)


def add_pause(
    store: ObjectStore, channel: str, run_id: str, paused: PausedOutput, *, is_planned: bool
) -> None:
    """Record that a stage of the run paused; raises as `add_to_run`."""

    def with_pause(values: dict[str, Any]) -> None:
        said = {"key": paused.key, "where": paused.where, "why": paused.why, "at": paused.at}
        values.setdefault("paused", {})[paused.stage] = {**said, "is_planned": is_planned}

    _change(store, channel, run_id, with_pause)


def _change(store: ObjectStore, channel: str, run_id: str, change: Callable[[dict[str, Any]], None]) -> None:
    name = run_record_name(channel, run_id)
    for _ in range(_TRIES):
        try:
            data, version = store.read(name)
        except FileNotFoundError:
            data, version = b"", ""
        where = f"{store.uri}/{name}"
        if data:
            parse_run(data, where), parse_events(data, where)
        values = _values(data, where) if data else {"schema": RUN_SCHEMA, "run_id": run_id, "outputs": {}}
        before = json.dumps(values)
        change(values)
        if data and json.dumps(values) == before:
            return
        values["written_at"] = utc_now()
        document = json.dumps(values, ensure_ascii=False, indent=1).encode() + b"\n"
        try:
            if data:
                store.replace(name, document, version)
            else:
                store.create(name, document)
            return
        except (Changed, AlreadyExists, FileNotFoundError):
            continue
    raise StorageError(f"{store.uri}/{name}: changed under {_TRIES} tries to add to it; try again")
