"""A training whose work is in a bucket, seen from another machine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from servers.s3 import S3Server
from toy_outputs import recipe, write_text

from yanmo.common.errors import DataError, WorkerLost
from yanmo.stage.session import Session
from yanmo.store.commit import commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.opening import open_store
from yanmo.store.pointers import move_pointer
from yanmo.store.runs.failure_card import Card, keep_card
from yanmo.store.runs.in_use import lease_name, work_name
from yanmo.store.runs.lease import Lease
from yanmo.store.runs.work_folder import WorkFolder
from yanmo.tools.watch.training import Watcher, others_at_work

KEY = "b41ab0931ad2" + 52 * "0"


def metrics(*steps: int) -> str:
    return "".join(json.dumps({"step": step, "loss": 4.0, "seconds": 1.0 * step}) + "\n" for step in steps)


def test_without_a_name_the_last_one_is_shown_or_one_that_has_failed_since(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    watcher = Watcher(store, "dev", "")
    folder = tmp_path / "runs/train" / KEY
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(metrics(10))
    assert watcher.look() is None, "left by somebody, and nothing says why"
    keep_card(store, KEY, Card(stage="train", exit_code=75, why="lost"), WorkerLost("lost"))
    found = watcher.look()
    assert found is not None and (found.key, found.state) == (KEY, "left")
    assert [card.why for card in found.failures] == ["lost"]

    made = commit_once(store, dataclasses.replace(recipe(), stage="train"), write_text("x"))
    assert made is not None
    move_pointer(store, "dev", "train", made.reference)
    late = Watcher(store, "dev", "").look()
    assert late is not None and (late.key, late.state) == (made.manifest.key, "done")


class EndsWhenAskedForItsOutput(FileStore):
    """A folder in which a training is committed just after somebody saw that it was not."""

    end: Callable[[], None] = staticmethod(lambda: None)

    def read(self, name: str) -> tuple[bytes, str]:
        try:
            return super().read(name)
        finally:
            if name.startswith("cas/train/"):
                self.end()


def test_one_that_is_committed_between_two_looks_into_the_store_is_not_left(tmp_path: Path) -> None:
    store, key = open_store(str(tmp_path)), dataclasses.replace(recipe(), stage="train").key
    lease = Lease(store, lease_name("train", key), "0123456789ab")
    assert lease.acquire()
    (tmp_path / "runs/train" / key / "job.json").write_text("{}")
    seen = EndsWhenAskedForItsOutput(tmp_path)

    def end() -> None:
        seen.end = lambda: None
        lease.release()
        commit_once(store, dataclasses.replace(recipe(), stage="train"), write_text("x"))

    seen.end = end
    watcher = Watcher(seen, "dev", key)
    first = watcher.look()
    assert first is not None and first.state == "at work"
    seen.end()
    second = watcher.look()
    assert second is not None and second.state == "done"


def test_one_in_a_bucket_is_shown_as_of_its_last_checkpoint(
    s3_server: S3Server, s3_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    place = f"s3://{s3_place}/watched"
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "there"))
    there = open_store(place)
    lease = Lease(there, lease_name("train", KEY), "0123456789ab")
    assert lease.acquire()
    work = WorkFolder(there, work_name("train", KEY))

    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "here"))
    here = Watcher(open_store(place), "dev", "")
    assert here.look() is None, "nothing of it is uploaded, and no pointer names another"
    assert others_at_work(open_store(place)) == []
    session, balance = Session(there, "curate"), Lease(there, lease_name("balance", KEY), "0123456789ab")
    made = commit_once(there, recipe(), write_text("x"))
    assert made is not None
    session.use([made])
    assert balance.acquire()
    assert others_at_work(open_store(place)) == ["balance/b41ab0931ad2"], "a session makes nothing"
    session.close()
    balance.release()

    for number, steps in (("0000000010", (10,)), ("0000000020", (10, 20))):
        file = work.path / f"checkpoints/step-{number}/metrics.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text(metrics(*steps))
        work.save(f"step-{number}", [str(file.relative_to(work.path))], lease)
        found = here.look()
        assert found is not None and (found.key, found.state) == (KEY, "at work")
        assert [line["step"] for line in found.lines] == list(steps)
        assert "last checkpoint" in found.note and found.silent_seconds is None

    lease.release()
    found = here.look()
    assert found is not None and found.state == "left" and len(found.lines) == 2
    name = f"runs/train/{KEY}/WORK.json"
    there.replace(name, b'{"files": [{}]}', there.read(name)[1])
    with pytest.raises(DataError, match=r"WORK\.json: damaged"):
        here.look()
    assert not list((tmp_path / "here").rglob("metrics.jsonl"))
