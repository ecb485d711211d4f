"""A request to stop reaches the workers, whoever makes it and however full the disk is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from yanmo.common import waiting
from yanmo.common.errors import WorkerLost
from yanmo.store.manifest import Reference
from yanmo.store.pause import Pause
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob
from yanmo.train.supervision.windows import _pause, _stop_file
from yanmo.train.time_window import TimeWindow


def test_a_terminal_that_is_closed_stops_the_run_in_order_unless_nohup_says_otherwise(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the suite itself may run under nohup
    try:
        with _stop_file(tmp_path / "stop") as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert len(stopping) == 1 and (tmp_path / "stop").exists()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with _stop_file(tmp_path / "stop") as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stopping
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_stop_that_cannot_be_written_down_is_heard_all_the_same(tmp_path, caplog):
    with _stop_file(tmp_path / "no such folder" / "stop") as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(stopping) == 1
    assert "end without saving" in caplog.text


@pytest.mark.parametrize("asked", [False, True])
def test_an_error_after_a_request_to_stop_is_not_followed_by_another_try(tmp_path, asked):
    try:
        with pytest.raises(WorkerLost), _stop_file(tmp_path / "stop"):
            if asked:
                os.kill(os.getpid(), signal.SIGTERM)
            raise WorkerLost("a rank was killed")
        assert waiting.is_ending() == asked
    finally:
        waiting._ending.clear()


@pytest.mark.parametrize(
    ("reason", "stopping", "why", "is_planned"),
    [
        ("the night is over", [], "the night is over", True),
        ("the night is over", [1.0], "asked to stop by a signal", False),
        ("", [1.0], "asked to stop by a signal", False),
        ("", [], "asked to stop by a signal to a rank", False),
    ],
)
def test_a_pause_always_says_why_and_only_its_own_hours_are_planned(reason, stopping, why, is_planned):
    reference = Reference(
        stage="tokenize",
        key="1" * 64,
        manifest_uri="x",
        manifest_sha256="2" * 64,
        content_digest="3" * 64,
    )
    job = WorkerJob(TrainConfig(), "store", reference, None, Path("work"))
    window = TimeWindow(False, float("inf"), "paused", reason)
    assert _pause(job, 68, window, stopping) == Pause(where="step 68 of 450", why=why, is_planned=is_planned)


@pytest.mark.parametrize("field", ["where", "why"])
def test_a_pause_that_does_not_say_where_and_why_cannot_be(field):
    with pytest.raises(ValueError, match="where it is, and why"):
        Pause(**{"where": "step 1 of 2", "why": "asked to stop", field: ""})
