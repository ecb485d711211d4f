"""What the record of a run says of when."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from yanmo.common.errors import DataError
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.pause import PausedOutput
from yanmo.store.runs.run_record import (
    add_pause,
    add_to_run,
    parse_events,
    parse_run,
    read_run,
    run_record_name,
)

NAME = run_record_name("main", "night-1")


def reference(digit: str) -> Reference:
    key = digit * 64
    return Reference(
        stage="train",
        key=key,
        manifest_uri=f"cas/train/{key}/MANIFEST.json",
        manifest_sha256=key,
        content_digest=key,
    )


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


def test_a_stage_that_is_found_again_by_a_retry_ended_when_it_first_did(store: FileStore) -> None:
    add_to_run(store, "main", "night-1", {"train": reference("a")})
    data, version = store.read(NAME)
    earlier = json.loads(data) | {"ended": {"train": "2026-11-22T22:00:00+00:00"}}
    store.replace(NAME, json.dumps(earlier).encode(), version)
    add_to_run(store, "main", "night-1", {"train": reference("a")})
    assert parse_events(store.read(NAME)[0], NAME).ended == {"train": 1795384800.0}
    add_to_run(store, "main", "night-1", {"train": reference("b")})
    assert abs(parse_events(store.read(NAME)[0], NAME).ended["train"] - time.time()) < 60


def test_a_record_of_an_earlier_version_has_no_times_and_gets_them(store: FileStore) -> None:
    add_to_run(store, "main", "night-1", {"train": reference("a")})
    data, version = store.read(NAME)
    old = {name: value for name, value in json.loads(data).items() if name not in ("ended", "paused")}
    store.replace(NAME, json.dumps(old).encode(), version)
    events = parse_events(store.read(NAME)[0], NAME)
    assert events.ended == {} and events.paused == {}
    add_to_run(store, "main", "night-1", {"train": reference("a")})
    assert parse_events(store.read(NAME)[0], NAME).ended.keys() == {"train"}


def test_a_pause_is_in_the_record_until_the_stage_ends(store: FileStore) -> None:
    paused = PausedOutput(
        stage="train", key="c" * 64, where="step 3 of 9", why="x", at="2026-11-22T22:00:00+00:00"
    )
    add_pause(store, "main", "night-1", paused, is_planned=True)
    assert parse_events(store.read(NAME)[0], NAME).paused == {"train": 1795384800.0}
    assert read_run(store, "main", "night-1") == {}
    add_to_run(store, "main", "night-1", {"train": reference("a")})
    assert parse_events(store.read(NAME)[0], NAME).paused == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"ended": {"train": "yesterday"}},
        {"ended": {"train": 5}},
        {"ended": ["train"]},
        {"paused": {"train": {"at": "x", "is_planned": True}}},
        {"paused": {"train": 1}},
    ],
)
def test_damaged_times_are_bad_data_and_leave_the_outputs_readable(
    store: FileStore, wrong: dict[str, object]
) -> None:
    add_to_run(store, "main", "night-1", {"train": reference("a")})
    data = json.dumps(json.loads(store.read(NAME)[0]) | wrong).encode()
    with pytest.raises(DataError, match="damaged"):
        parse_events(data, NAME)
    assert parse_run(data, NAME).keys() == {"train"}
