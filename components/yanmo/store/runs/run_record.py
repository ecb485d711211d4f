"""What a run's stages made or found, so that a later command can take its inputs from that run.

    <store>/pointers/<channel>/runs/<run id>.json

Pointers name a channel's latest outputs; this names those of one run, new or found, under the names of the
pointers that it moved, for `--inputs run:ID`. gc keeps what a young record names, or one of the newest
`--keep-runs` of a channel, and removes the others.

Cost: one small object read and written at the end of each stage that has a run id.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore, as_part
from yanmo.store.record import Record

_NAME = re.compile(r"pointers/[^/]+/runs/[^/]+\.json\Z")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What one run made or found, and what it is about."""

    run_id: str
    outputs: dict[str, Reference] = field(default_factory=dict)
    """Pointer -> what the run's stage made or found."""
    options: str = ""
    """Those of its stages in one line, as its first task has read and checked them."""
    pinned: dict[str, Reference | None] = field(default_factory=dict)
    """What its first task found that the channel's pointers named, by name."""
    night: dict[str, Any] = field(default_factory=dict)
    """`training` ("new", or "finish" of an earlier run's), `finishes` (which), `set_aside` (earlier
    trainings, and why), `data_sources`, `nothing_new` (since which run)."""


RUN = Record("yanmo.run/1", RunRecord, "delete it, and start its run again")


def run_record_name(channel: str, run_id: str) -> str:
    """Return the name of the record of a run."""
    return f"pointers/{channel}/runs/{as_part(run_id)}.json"


def is_run_record(name: str) -> bool:
    """Return whether an object of the store is such a record, by its name."""
    return _NAME.match(name) is not None


def read_run(store: ObjectStore, channel: str, run_id: str) -> dict[str, Reference] | None:
    """Pointer -> what the run's stage made or found; None where no such run is recorded.

    Raises:
        DataError: the record is damaged.
    """
    found = RUN.read(store, run_record_name(channel, run_id))
    return found.outputs if found else None


def read_night(store: ObjectStore, channel: str, run_id: str) -> dict[str, Any]:
    """Return what `note_night` recorded of the run; empty where it did not. Raises as `read_run`."""
    found = RUN.read(store, run_record_name(channel, run_id))
    return found.night if found else {}


def pin_for_run(
    store: ObjectStore, channel: str, run_id: str, options: str, pinned: Mapping[str, Reference | None]
) -> None:
    """Record the options and inputs of the run's later tasks (stage/form.py); raises as `add_to_run`."""
    _change(store, channel, run_id, lambda run: {"options": options, "pinned": dict(pinned)})


def add_to_run(store: ObjectStore, channel: str, run_id: str, outputs: Mapping[str, Reference]) -> None:
    """Record what a stage of the run made or found; two of them may do so at once.

    Raises:
        StorageError: it changed under every try.
        DataError: what is there is damaged.
    """
    _change(
        store, channel, run_id, lambda run: {"outputs": dict(sorted((run.outputs | dict(outputs)).items()))}
    )


def note_night(store: ObjectStore, channel: str, run_id: str, said: Mapping[str, Any]) -> None:
    """Record what the run is about, beside what it was noted to be about before; raises as `add_to_run`.

    Args:
        said: JSON values for `RunRecord.night`.
    """
    _change(store, channel, run_id, lambda run: {"night": {**run.night, **said}})


def _change(
    store: ObjectStore, channel: str, run_id: str, changes: Callable[[RunRecord], dict[str, Any]]
) -> None:
    def changed(before: RunRecord | None) -> RunRecord:
        before = before or RunRecord(run_id=run_id)
        return dataclasses.replace(before, **changes(before))

    RUN.change(store, run_record_name(channel, run_id), changed)
