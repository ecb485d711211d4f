"""What a look at a store sees, and how little it reads."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from yanmo.common.errors import StorageError, WorkerLost
from yanmo.store import traffic
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.pause import PausedOutput
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.failure_card import Card, keep_card
from yanmo.store.runs.in_use import lease_name
from yanmo.store.runs.lease import Lease
from yanmo.store.runs.run_record import add_pause, add_to_run
from yanmo_pipelines.cluster.status.serving.look import Watcher, count


def made(store: FileStore, stage: str, name: str, content: object, options: str = "") -> Reference:
    """An output of the stage that holds one JSON file."""

    def build(attempt: Attempt) -> Result:
        attempt.write(name, json.dumps(content, ensure_ascii=False))
        return Result(counts={})

    recipe = Recipe(stage=stage, revision=1, semantic={"of": options}, inputs={})
    output = commit_once(store, recipe, build)
    assert output is not None
    return output.reference


def verdict(store: FileStore, outcome: str, options: str) -> Reference:
    return made(store, "promote", "verdict.json", {"outcome": outcome}, options)


SUMMARY = {
    "mean": {"bits_per_character": 4.5},
    "genres": {"诗": {"bits_per_character": 4.0}, "词": {"bits_per_character": 5.0}},
}


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """A channel with two runs and a champion."""
    place = FileStore(tmp_path / "store")
    evaluation = made(place, "evaluate", "summary.json", SUMMARY)
    for number, outcome in enumerate(("promoted", "not promoted")):
        judged = verdict(place, outcome, str(number))
        move_pointer(place, "main", "promote", judged)
        add_to_run(place, "main", f"night-{number}", {"promote": judged, "evaluate": evaluation})
    move_pointer(place, "main", "champion_evaluation", evaluation)
    return place


def settled(store: FileStore) -> None:
    """Let everything be a minute old, as on a store that is left alone."""
    for path in store.root.rglob("*"):
        os.utime(path, (path.stat().st_atime - 60, path.stat().st_mtime - 60))


def reads(watcher: Watcher) -> int:
    before = traffic.so_far()["read"].requests
    watcher.look()
    return traffic.so_far()["read"].requests - before


def test_a_look_sees_bits_verdicts_and_when_stages_ended(store: FileStore) -> None:
    seen = Watcher(store).look()
    channel = seen.channels["main"]
    assert channel.bits == {"诗": 4.0, "词": 5.0} and channel.mean_bits == 4.5
    assert channel.verdict == "not promoted"
    assert channel.verdicts == {"promoted": 1, "not promoted": 1, "not valid": 0}
    assert {stage for stage, _ in channel.ended} == {"promote", "evaluate"}
    assert all(abs(at - time.time()) < 60 for _, at in channel.ended)
    assert not seen.damaged and not seen.working


def test_an_output_that_was_found_again_is_a_success_of_that_moment(store: FileStore) -> None:
    settled(store)
    for path in (store.root / "pointers/main/runs").iterdir():
        path.unlink()
    before = max(at for _, at in Watcher(store).look().channels["main"].ended)
    assert before < time.time() - 30
    judged = verdict(store, "not promoted", "1")  # committed already
    move_pointer(store, "main", "promote", judged)
    add_to_run(store, "main", "night-3", {"promote": judged})
    after = max(at for _, at in Watcher(store).look().channels["main"].ended)
    assert after > time.time() - 30


def test_a_second_look_reads_only_what_changed(store: FileStore) -> None:
    watcher = Watcher(store)
    watcher.look()
    settled(store)
    assert reads(watcher) > 0, "all is of another age now"
    assert reads(watcher) == 0
    judged = verdict(store, "promoted", "2")
    move_pointer(store, "main", "promote", judged)
    assert reads(watcher) == 4, "the pointer, the lease, the manifest, verdict.json"
    assert watcher.look().channels["main"].verdict == "promoted"
    assert reads(watcher) == 2, "pointer and lease are young: they could change within the second"


def test_what_runs_is_seen_with_its_channel_and_what_was_left_with_how_it_ended(store: FileStore) -> None:
    key = "d" * 64
    lease = Lease(store, lease_name("train", key), "a", note={"channel": "main"})
    assert lease.acquire()
    (store.root / f"runs/train/{'e' * 64}").mkdir(parents=True)
    store.create(f"runs/train/{'e' * 64}/WORK.json", b"{}")
    lost = WorkerLost("rank 1 was killed")
    keep_card(store, "f" * 64, Card.of("train", lost, ""), lost)
    seen = Watcher(store).look()
    lease.release()
    (working,) = seen.working
    assert (working.stage, working.channel) == ("train", "main")
    assert working.since is not None and abs(working.since - time.time()) < 60
    assert (seen.left["train"], seen.failed["train"], seen.left["curate"]) == (2, 1, 0)
    assert Watcher(store).look().working == ()


def test_a_planned_pause_is_seen_and_one_by_a_signal_is_not(store: FileStore) -> None:
    for run, planned in (("by-hours", True), ("by-signal", False)):
        paused = PausedOutput(stage="train", key="d" * 64, where="step 3", why="x", at="2026-11-22T23:00:00Z")
        add_pause(store, "main", run, paused, is_planned=planned)
    (at,) = Watcher(store).look().channels["main"].paused
    assert at == 1795388400.0
    add_to_run(store, "main", "by-hours", {"train": verdict(store, "x", "y")})
    assert Watcher(store).look().channels["main"].paused == (), "the same run went on to its end"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"schema": "yanmo.run/1", "outputs": {}, "ended": []}']
)
@pytest.mark.parametrize(
    "name", ["promote.json", "champion_evaluation.json", "runs/night-1.json", "history/000001.json"]
)
def test_a_damaged_file_is_counted_and_hides_nothing_else(store: FileStore, name: str, body: bytes) -> None:
    path = store.root / "pointers/main" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(body)
    seen = Watcher(store).look()
    assert seen.damaged == {f"pointers/main/{name}"}
    channel = seen.channels["main"]
    assert channel.bits or name == "champion_evaluation.json"
    assert channel.verdict or name == "promote.json"


def test_an_output_that_is_gone_is_counted(store: FileStore) -> None:
    for path in (store.root / "cas/evaluate").glob("*/MANIFEST.json"):
        path.unlink()
    seen = Watcher(store).look()
    assert len(seen.damaged) == 1 and not seen.channels["main"].bits


def test_only_the_channel_that_was_asked_for_is_read(store: FileStore) -> None:
    move_pointer(store, "other", "promote", verdict(store, "promoted", "0"))
    assert Watcher(store).look().channels.keys() == {"main", "other"}
    assert Watcher(store, "other").look().channels.keys() == {"other"}


def test_a_folder_that_is_not_there_is_no_empty_store(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such folder"):
        Watcher(FileStore(tmp_path / "none")).look()


def test_all_objects_are_counted_by_folder(store: FileStore) -> None:
    (store.root / "notes.txt").write_bytes(b"12345")
    found = count(store)
    files = [path for path in store.root.rglob("*") if path.is_file()]
    assert sum(objects for objects, _ in found.values()) == len(files)
    assert sum(size for _, size in found.values()) == sum(path.stat().st_size for path in files)
    assert found["other"] == (1, 5) and found["kfp"] == (0, 0)
