"""What a run's stages made or found, so that a later command can take its inputs from that run.

    <store>/pointers/<channel>/runs/<run id>.json

Pointers name a channel's latest outputs; this names those of one run, new or found, under the names of the
pointers that it moved, for `--inputs run:ID`. gc keeps what a young record names, or one of the newest
`--keep-runs` of a channel, and removes the others.

Cost: one small object read and written at the end of each stage that has a run id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from yanmo.common.errors import DataError, wrong_in
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore, amend, as_part
from yanmo.store.schema import OtherSchema, parse, utc_now

RUN_SCHEMA = "yanmo.run/1"
_MAX_BYTES = 262_144
_NAME = re.compile(r"pointers/[^/]+/runs/[^/]+\.json\Z")


def run_record_name(channel: str, run_id: str) -> str:
    """Where the record of a run lies."""
    return f"pointers/{channel}/runs/{as_part(run_id)}.json"


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


def _values(data: bytes, where: str) -> dict[str, Any]:
    try:
        values = parse(data, RUN_SCHEMA, _MAX_BYTES)
        if not isinstance(values.get("outputs"), dict):
            raise ValueError("lacks outputs")
    except OtherSchema as error:
        raise DataError(f"{where}: {error}") from error
    except ValueError as error:
        raise _damaged(where, error) from error
    return values


def _damaged(where: str, error: Exception) -> DataError:
    return DataError(f"{where}: damaged: {wrong_in(error)}; delete it: only `--inputs run:ID` reads it")


def add_to_run(store: ObjectStore, channel: str, run_id: str, outputs: Mapping[str, Reference]) -> None:
    """Record what a stage of the run made or found; two of them may do so at once.

    Raises:
        StorageError: it changed under every try.
        DataError: what is there is damaged.
    """

    def with_outputs(values: dict[str, Any]) -> None:
        before = values["outputs"]
        values["outputs"] = dict(sorted({**before, **{n: asdict(r) for n, r in outputs.items()}}.items()))

    _change(store, channel, run_id, with_outputs)


def note_night(store: ObjectStore, channel: str, run_id: str, said: Mapping[str, Any]) -> None:
    """Record what the run is about, beside what it was noted to be about before; raises as `add_to_run`.

    Args:
        said: JSON values; `training` ("new", or "finish" of an earlier run's), `finishes` (which),
            `set_aside` (earlier trainings, and why), `data_sources`, `nothing_new` (since which run).
    """

    def with_night(values: dict[str, Any]) -> None:
        values["night"] = {**values.get("night", {}), **said}

    _change(store, channel, run_id, with_night)


def parse_night(data: bytes, where: str) -> dict[str, Any]:
    """What the run of a record was about (`note_night`); empty where nothing was noted."""
    values = _values(data, where)
    night = values.get("night", {})
    if not isinstance(night, dict):
        raise _damaged(where, ValueError("night is no object"))
    return night


def read_night(store: ObjectStore, channel: str, run_id: str) -> dict[str, Any]:
    """`parse_night` of a run; empty where no such run is recorded."""
    name = run_record_name(channel, run_id)
    try:
        return parse_night(store.read(name)[0], f"{store.uri}/{name}")
    except FileNotFoundError:
        return {}


def _change(store: ObjectStore, channel: str, run_id: str, change: Callable[[dict[str, Any]], None]) -> None:
    name = run_record_name(channel, run_id)
    where = f"{store.uri}/{name}"

    def written(data: bytes | None) -> bytes:
        if data:
            parse_run(data, where), parse_night(data, where)
        values = _values(data, where) if data else {"schema": RUN_SCHEMA, "run_id": run_id, "outputs": {}}
        before = json.dumps(values)
        change(values)
        if data and json.dumps(values) == before:
            return data
        values["written_at"] = utc_now()
        return json.dumps(values, ensure_ascii=False, indent=1).encode() + b"\n"

    amend(store, name, written)
