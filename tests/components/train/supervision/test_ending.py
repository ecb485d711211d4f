"""The card of a failed training names the rank that ended it, in real processes, not those that waited."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_runs import begun, command, environment, wait_for

from yanmo.common.errors import DataError, ExitCode, WorkerLost, exit_code
from yanmo.store.opening import open_store
from yanmo.store.pointers import read_pointer
from yanmo.store.runs.failure_card import Card, details_of
from yanmo.train.health.watchdog import TRAINING, doings, heartbeat_path
from yanmo.train.job import Status
from yanmo.train.supervision.ending import Ending, raise_failure

DOINGS = {0: "training step 5", 1: "training step 5"}
FOLLOWED = Status(0, "failed", follows=True, exit_code=70, message="Connection closed by peer")


def error_of(**known) -> Exception:
    with pytest.raises(Exception) as caught:
        raise_failure(Ending(**{"ranks": 2, "statuses": [], "doings": DOINGS, **known}))
    return caught.value


def card_of(**known) -> Card:
    return Card.of("train", error_of(**known))


def hung(rank: int, *, waits: bool = False, at: float = 1.0) -> Status:
    message = "no progress for 40 s"
    return Status(rank, "failed", 0, 75, message, "", at, False, False, True, waits)


def test_the_first_cause_decides_not_the_ranks_that_followed():
    statuses = [
        Status(0, "failed", exit_code=70, message="connection closed", time=1.0, follows=True),
        Status(1, "failed", exit_code=65, message="the cache is cut short", time=2.0),
    ]
    error = error_of(statuses=statuses)
    assert isinstance(error, DataError) and str(error) == "rank 1: the cache is cut short"
    assert details_of(error).where == "rank 1 of 2, in training step 5"


def test_a_rank_without_a_word_was_killed_and_may_be_tried_again():
    error = error_of(statuses=[FOLLOWED], tail="last words")
    assert isinstance(error, WorkerLost) and "rank 1 of 2 was killed" in str(error)
    assert exit_code(error) == ExitCode.RETRY and "last words" in str(error)


@pytest.mark.parametrize(("started", "rank"), [([], 0), ([0], 1)])
def test_a_rank_that_never_started_is_not_reported_to_have_run_out_of_memory(started, rank):
    statuses = [Status(r, "failed", follows=True, exit_code=70) for r in started]
    error = error_of(statuses=statuses, doings=dict.fromkeys(started, "starting"), tail="no such name")
    assert isinstance(error, WorkerLost) and f"rank {rank} of 2 never started" in str(error)
    assert exit_code(error) == ExitCode.RETRY
    assert "no such name" in str(error) and "memory" not in str(error)


def test_done_and_paused_ranks_raise_nothing():
    raise_failure(Ending(ranks=2, statuses=[Status(0, "paused"), Status(1, "paused")]))


def test_of_ranks_that_were_ended_the_one_that_died_first_is_named():
    """Where one is killed while torch is imported, the other is ended by SIGTERM: both say nothing."""
    card = card_of(codes={1: -signal.SIGKILL, 0: -signal.SIGTERM})
    assert card.where == "rank 1 of 2, in training step 5" and "killed by SIGKILL" in card.why
    late = card_of(codes={0: -signal.SIGKILL, 1: -signal.SIGKILL})  # both at once
    assert late.where.startswith("rank 0")
    crash = card_of(codes={1: -signal.SIGSEGV, 0: 1}, statuses=[FOLLOWED])
    assert crash.where.startswith("rank 1") and "SIGSEGV" in crash.why


@pytest.mark.parametrize("doing", [DOINGS, {0: "joining the other ranks"}], ids=["training", "starting"])
def test_a_connection_that_broke_is_not_blamed_on_the_rank_that_was_asked_to_end_for_it(doing):
    """Somebody who connects to gloo's port and talks nonsense; the other rank has not begun, or trains."""
    error = error_of(codes={0: 1, 1: -signal.SIGTERM}, statuses=[FOLLOWED], doings=doing)
    assert isinstance(error, WorkerLost) and exit_code(error) == ExitCode.RETRY
    assert str(error).startswith("rank 0 of 2 lost its connection to another rank, though none had failed")
    assert details_of(error).where.startswith("rank 0 of 2")


def test_a_crash_is_the_cause_of_an_error_that_came_after_it_and_not_before():
    said = Status(0, "failed", exit_code=70, message="NCCL said something new", kind="RuntimeError", time=5)
    assert card_of(codes={1: -signal.SIGSEGV, 0: 1}, statuses=[said]).where.startswith("rank 1")
    assert card_of(codes={0: 1, 1: -signal.SIGABRT}, statuses=[said]).where.startswith("rank 0")
    assert card_of(codes={0: 1, 1: -signal.SIGKILL}, statuses=[said]).where.startswith("rank 0")


@given(st.integers(0, 6))
def test_the_rank_that_stands_still_is_named_whoever_reported_it(frozen: int):
    ranks = range(7)
    statuses = [hung(r, waits=True, at=r) for r in ranks if r != frozen]
    card = card_of(ranks=7, statuses=statuses, doings=dict.fromkeys(ranks, "training step 9"))
    assert card.where == f"rank {frozen} of 7, in training step 9" and "stands still" in card.why
    (others,) = card.others
    assert "waited for it" in others and card.exit_code == ExitCode.RETRY


def test_of_living_ranks_the_one_in_no_collective_or_the_last_one_is_named():
    both = [hung(0, waits=True), hung(1)]
    assert card_of(statuses=both).where.startswith("rank 1")
    behind = card_of(statuses=[hung(0), hung(1)], doings={0: "training step 4", 1: "training step 5"})
    assert behind.where.startswith("rank 0")
    unknown = card_of(statuses=[hung(0, waits=True), hung(1, waits=True)])
    assert unknown.where == "all 2 ranks" and "cannot be told" in unknown.why
    alone = card_of(ranks=1, statuses=[hung(0)], doings={0: "training step 4"})
    assert alone.where == "rank 0 of 1, in training step 4" and "no progress for 40 s" in alone.why


def test_many_ranks_share_a_line():
    doings = {rank: "training step 9" for rank in range(6) if rank != 4}
    card = card_of(ranks=6, codes={3: -signal.SIGKILL}, doings=doings)
    assert card.others == ("ranks 0, 1, 2, 5 lost it, in training step 9", "rank 4 had not begun")


# Real processes.


def started(store: Path, options: dict, site: str = "") -> subprocess.Popen[str]:
    env = environment(site)
    return subprocess.Popen(command(store, options), stderr=subprocess.PIPE, text=True, env=env)


def card_in(store: Path) -> dict:
    (path,) = store.glob("runs/train/*/FAILURE.json")
    return json.loads(path.read_text(encoding="utf-8"))


SIGNALS = {
    "stopped": (signal.SIGSTOP, 1, 75, "stands still: a stopped process"),
    "killed": (signal.SIGKILL, 0, 75, "was killed by SIGKILL"),
}


@pytest.mark.fault
@pytest.mark.parametrize("what", SIGNALS)
def test_a_rank_that_a_signal_ended_is_named_with_what_is_kept(store, tiny, what):
    number, rank, code, why = SIGNALS[what]
    long = {**tiny, "steps": 3000, "ranks": 2, "checkpoint_steps": 2, "hang_seconds": 60}
    process = started(store, long)
    folder = wait_for(lambda: begun(store, 5), 500)
    while not all(doing.startswith(TRAINING) for doing in doings(folder).values()):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)  # what a rank does is said a second later at most
    os.kill(int(heartbeat_path(folder, rank).read_text()), number)
    log = process.communicate(timeout=500)[1]
    assert process.returncode == code, log
    card = card_in(store)
    assert card["where"].startswith(f"rank {rank} of 2, in training step ") and why in card["why"], log
    assert card["exit_code"] == code and card["checkpoint"].startswith("step ")
    assert card["command"].startswith("yanmo train --store=")
    lines = [line.partition(" train    ")[2] for line in log.splitlines()]
    assert f"failed: {card['where']}" in lines
    assert any(line.startswith(f"last good checkpoint: {card['checkpoint']}, ") for line in lines)
    assert any(line.startswith(f"rank {1 - rank} ") for line in card["others"]), card
    assert lines[-2].startswith("to run it again: yanmo train ") and lines[-1].startswith("train error 75: ")
    if what == "killed":
        goes_on_and_remembers(store, {**long, "max_seconds": 1, "log_format": "json"})


def goes_on_and_remembers(store: Path, options: dict) -> None:
    again = subprocess.run(command(store, options), capture_output=True, text=True, timeout=500)
    assert again.returncode == 0, again.stderr
    said = [json.loads(line) for line in again.stderr.splitlines()]
    assert any(line["message"].startswith("an earlier try ended at ") for line in said)
    assert {line["stage"] for line in said} == {"train"}
    assert any("resuming at step" in line["message"] and line.get("rank") == 0 for line in said)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("fault", "code", "why"),
    [
        ("raise_error", 70, "ZeroDivisionError: the third forward of this rank"),
        ("need_too_much", 78, "out of memory with one row"),
    ],
)
def test_a_rank_that_fails_by_itself_is_named_and_a_later_success_keeps_the_record(
    store, tiny, tmp_path, faults, fault, code, why
):
    options = {**tiny, "ranks": 2, "micro_batch": 1, "log_format": "json"}
    site = faults.install(tmp_path / "site", f"faults.at_forward(9, 1, faults.{fault})")
    process = started(store, options, site)
    log = process.communicate(timeout=500)[1]
    assert process.returncode == code, log
    card = card_in(store)
    assert card["where"].startswith("rank 1 of 2, in training step 3"), (card, log)
    assert why in " ".join(card["why"].split()) and not card["checkpoint"], card
    assert "last good checkpoint: none yet, it begins again" in log
    if fault == "raise_error":
        return
    done = subprocess.run(command(store, options), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert read_pointer(open_store(str(store)), "dev", "train") is not None
    assert not list(store.glob("runs/train/*/FAILURE.json"))
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    last = next(line for line in reversed(lines) if line.get("step") == 8)
    assert "perplexity" in last and "gradient norm" in last["message"], lines
