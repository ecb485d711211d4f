"""The record of what a channel has begun: what comes back, who wins, what is refused, what is progress."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common.errors import DataError
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.runs.unfinished import (
    GIVEN_UP,
    LEFT,
    TRAINED,
    Training,
    Unfinished,
    change_unfinished,
    read_unfinished,
    unfinished_name,
)

NAME = unfinished_name("main")


def reference(stage: str, digit: str) -> Reference:
    key = digit * 64
    return Reference(
        stage=stage,
        key=key,
        manifest_uri=f"cas/{stage}/{key}/MANIFEST.json",
        manifest_sha256=key,
        content_digest=key,
    )


def training(digit: str, **changed: object) -> Training:
    made = Training(
        key=digit * 64,
        revision=2,
        options={"steps": 450, "floor": 0.0, "tied_head": False, "optimizer": "muon"},
        execution={"ranks": 1},
        inputs={"token_cache": reference("tokenize", digit), "model": None},
        run_id="night-1",
    )
    return dataclasses.replace(made, **changed)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


def test_what_was_noted_comes_back_and_nothing_is_written_for_nothing(store: FileStore) -> None:
    assert read_unfinished(store, "main") == Unfinished()
    assert change_unfinished(store, "main", lambda record: record.without("a" * 64)) == Unfinished()
    assert store.stat(NAME) is None
    noted = training("a").tried("night-1", "").tried("night-2", "step-~001-step-00000120")
    change_unfinished(store, "main", lambda record: record.with_(noted))
    assert read_unfinished(store, "main").open == [noted] and noted.step == 120
    assert read_unfinished(store, "other") == Unfinished(), "a channel's own"
    aside = noted.aside(LEFT, "left by run night-3")
    change_unfinished(store, "main", lambda record: record.with_(aside))
    found = read_unfinished(store, "main")
    assert found.open == [] and found.set_aside == [aside]


def test_the_first_that_was_begun_is_finished_first_unless_a_person_says_otherwise() -> None:
    record = Unfinished().with_(training("a")).with_(training("b"))
    assert [one.key[0] for one in record.open] == ["a", "b"]
    again = record.with_(training("b", state=TRAINED))
    assert [one.key[0] for one in again.open] == ["a", "b"], "a change keeps its place"
    assert [one.key[0] for one in record.with_(training("b"), first=True).open] == ["b", "a"]
    assert [one.key[0] for one in record.without("a" * 64).open] == ["b"]


def test_only_the_newest_of_many_that_were_set_aside_are_kept(store: FileStore) -> None:
    keys = [f"{number:064x}" for number in range(40)]
    for key in keys:
        one = training("a", key=key).aside(GIVEN_UP, "three runs came no further")
        change_unfinished(store, "main", lambda record, one=one: record.with_(one))
    assert [one.key for one in read_unfinished(store, "main").set_aside] == keys[-20:]


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v["trainings"][0].update(state="asleep"),
        lambda v: v["trainings"][0].update(checkpoint="../../x"),
        lambda v: v["trainings"][0].update(begun_at="yesterday"),
        lambda v: v.update(schema="yanmo.unfinished/9"),
    ],
)
def test_a_damaged_record_is_refused_with_what_to_do(store: FileStore, change: object) -> None:
    change_unfinished(store, "main", lambda record: record.with_(training("a")))
    data, version = store.read(NAME)
    values = json.loads(data)
    change(values)  # type: ignore[operator]
    store.replace(NAME, json.dumps(values).encode(), version)
    with pytest.raises(
        DataError, match=r"unfinished/main\.json: (damaged: .*delete it|.*another version of)"
    ):
        read_unfinished(store, "main")
    with pytest.raises(DataError):
        change_unfinished(store, "main", lambda record: record.without("a" * 64))


@given(st.lists(st.integers(0, 3), max_size=12))
def test_tries_without_progress_are_those_since_the_checkpoint_last_grew(gains: list[int]) -> None:
    """Each run finds some checkpoint and makes so many more; what counts is what the next one finds."""
    found, made, last_gain = training("a"), 0, 0
    for number, gain in enumerate(gains):
        found = found.tried(f"night-{number}", label(made))
        found = found.tried(f"night-{number}", label(made))  # a retry of the same run is no other night
        made += gain
        last_gain = 0 if gain else last_gain + 1
        assert found.stalled(label(made)) == last_gain
        assert found.stalled(label(made), but=f"night-{number}") == max(last_gain - 1, 0)


def label(checkpoints: int) -> str:
    return f"step-{checkpoints:08d}" if checkpoints else ""


def test_a_rewind_is_progress_though_its_step_is_lower() -> None:
    found = training("a").tried("night-1", "step-00000100").tried("night-2", "step-00000100")
    assert found.stalled("step-00000100") == 2
    assert found.stalled("step-~001-step-00000080") == 0
