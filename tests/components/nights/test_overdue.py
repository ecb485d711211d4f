"""Nights that nobody ended: a killed process, a kill between two writes."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

import pytest
from conftest import VERDICT, end_of, run_of, text_of

from yanmo.nights.index import report_begin, report_end, rows_shown
from yanmo.nights.overdue import settle
from yanmo.nights.record import NIGHT, NightRecord, record_name, record_verdict
from yanmo.store.objects import ObjectStore
from yanmo.store.runs.in_use import lease_name
from yanmo.store.runs.lease import Lease

KEY = "ab" * 32
HOLDER = """
import sys, time
from pathlib import Path
from yanmo.store.file_store import FileStore
from yanmo.store.runs.lease import Lease
assert Lease(FileStore(Path(sys.argv[1])), sys.argv[2], "attempt").acquire()
print("held", flush=True)
time.sleep(600)
"""


def age(store: ObjectStore, hours: float, run_id: str = "run-1") -> None:
    """Let all that is known of a night be so much older."""
    before = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - hours * 3600))

    def older(record: NightRecord | None) -> NightRecord:
        assert record is not None
        stages = {task: dataclasses.replace(stage, at=before) for task, stage in record.stages.items()}
        return dataclasses.replace(record, began=before, stages=stages)

    NIGHT.change(store, record_name("nightly", run_id), older)


def state(store: ObjectStore) -> str:
    return rows_shown(store, "nightly")[0].state


def begun(store: ObjectStore) -> None:
    report_end(run_of(store), end_of("resolve"))
    report_begin(run_of(store), end_of("train", "working", key=KEY, seconds=0.0))


def test_a_training_killed_with_9_is_found_by_the_next_that_looks(store: ObjectStore, tmp_path: Path) -> None:
    begun(store)
    name = lease_name("train", KEY)
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "store"), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        age(store, 1)
        assert settle(store, "nightly") == 0 and state(store) == "begun", "it lives"
        holder.kill()
        holder.wait()
    assert settle(store, "nightly", but="run-1") == 0, "not by the run itself"
    assert settle(store, "nightly") == 1
    row = rows_shown(store, "nightly")[0]
    assert row.state == "silent" and "train was at work and ended without a word" in row.sentence.en
    assert "ended without a word" in text_of(store, "nights/nightly/index.html")
    assert settle(store, "nightly") == 0, "said once"


def test_a_stage_that_has_just_begun_is_given_time_to_take_its_lease(store: ObjectStore) -> None:
    begun(store)
    assert settle(store, "nightly") == 0 and state(store) == "begun"
    age(store, 0.2)
    assert settle(store, "nightly") == 1 and state(store) == "silent"


def test_a_lease_of_another_machine_is_dead_when_it_is_silent(store: ObjectStore, tmp_path: Path) -> None:
    begun(store)
    name = lease_name("train", KEY)
    lease = Lease(store, name, "attempt")
    assert lease.acquire()
    lease._end_renewal()
    said = json.loads(store.read(name)[0]) | {"machine": "node-7/boot/ns"}
    (tmp_path / "store" / name).write_text(json.dumps(said))
    age(store, 1)
    assert settle(store, "nightly") == 0, "renewed a moment ago"
    long_ago = time.time() - 400
    os.utime(tmp_path / "store" / name, (long_ago, long_ago))
    assert settle(store, "nightly") == 1 and state(store) == "silent"


def test_a_night_that_waits_for_a_node_is_given_half_a_day(store: ObjectStore) -> None:
    report_end(run_of(store), end_of("resolve"))
    age(store, 11)
    assert settle(store, "nightly") == 0 and state(store) == "begun"
    age(store, 13)
    assert settle(store, "nightly") == 1 and state(store) == "silent"
    report_end(run_of(store), end_of("resolve"))  # the pod came up at last
    assert state(store) == "begun", "and goes on where it goes on after all"


@pytest.mark.parametrize(
    ("said", "is_now"),
    [
        ("terminated", "terminated"),
        ("failed", "failed"),
        ("done", "done"),
        ("goes on", "begun"),
        ("", "begun"),
    ],
)
def test_whoever_can_be_asked_says_how_a_run_ended(store: ObjectStore, said: str, is_now: str) -> None:
    """A run that was terminated in KFP's UI said nothing more."""
    begun(store)
    settle(store, "nightly", ask=lambda run_id: said if run_id == "run-1" else "")
    assert state(store) == is_now
    report_begin(run_of(store), end_of("train", "working", key=KEY, seconds=0.0))  # KFP's Retry
    report_end(run_of(store), end_of("train", "paused"))
    assert state(store) == "paused"


def test_a_silent_run_is_asked_about_later(store: ObjectStore) -> None:
    begun(store)
    age(store, 1)
    assert settle(store, "nightly") == 1 and state(store) == "silent"
    assert settle(store, "nightly", ask=lambda run_id: "") == 0 and state(store) == "silent"
    assert settle(store, "nightly", ask=lambda run_id: "goes on") == 0 and state(store) == "silent"
    assert settle(store, "nightly", ask=lambda run_id: "terminated") == 1 and state(store) == "terminated"


def test_the_last_stage_of_a_run_ends_it_where_no_verdict_does(store: ObjectStore) -> None:
    run = run_of(store, last="tokenize")
    for task in ("resolve", "curate", "balance"):
        report_end(run if task == "resolve" else run_of(store, last=task), end_of(task))
        assert state(store) == "begun", task
    report_end(run_of(store, last="tokenize"), end_of("tokenize"))
    row = rows_shown(store, "nightly")[0]
    assert (row.state, row.sentence.en) == ("done", "tokenize is done.")
    assert re.fullmatch(r"\d\d:\d\d", row.time) and row.time in text_of(store, "nights/nightly/index.html")


def test_an_index_that_is_behind_its_record_is_mended(store: ObjectStore) -> None:
    """A kill after the verdict was entered, and before it was shown."""
    begun(store)
    record_verdict(run_of(store), VERDICT)
    assert state(store) == "begun"
    assert settle(store, "nightly") == 1 and state(store) == "promoted"
