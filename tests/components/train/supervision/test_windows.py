"""What happens around the workers: requests to stop, pauses, the power limit (by nvml_answers.py)."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nvml_answers import Driver

from yanmo.common import waiting
from yanmo.common.errors import WorkerLost
from yanmo.stage.nvml import Nvml, power_limit
from yanmo.store.manifest import Reference
from yanmo.store.output import Pause
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob
from yanmo.train.supervision.supervisor import _pause
from yanmo.train.time_window import TimeWindow, stop_file


def test_a_terminal_that_is_closed_stops_the_run_in_order_unless_nohup_says_otherwise(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the suite itself may run under nohup
    try:
        with stop_file(tmp_path / "stop") as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert len(stopping) == 1 and (tmp_path / "stop").exists()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with stop_file(tmp_path / "stop") as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stopping
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_stop_that_cannot_be_written_down_is_heard_all_the_same(tmp_path, caplog):
    with stop_file(tmp_path / "no such folder" / "stop") as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(stopping) == 1
    assert "end without saving" in caplog.text


@pytest.mark.parametrize("asked", [False, True])
def test_an_error_after_a_request_to_stop_is_not_followed_by_another_try(tmp_path, asked):
    try:
        with pytest.raises(WorkerLost), stop_file(tmp_path / "stop"):
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
    window = TimeWindow(float("inf"), reason)
    assert _pause(job, 68, window, stopping) == Pause(where="step 68 of 450", why=why, is_planned=is_planned)


@pytest.mark.parametrize("field", ["where", "why"])
def test_a_pause_that_does_not_say_where_and_why_cannot_be(field):
    with pytest.raises(ValueError, match="where it is, and why"):
        Pause(**{"where": "step 1 of 2", "why": "asked to stop", field: ""})


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Driver()


@contextmanager
def limited(driver: Driver, *watts: int) -> Iterator[None]:
    with power_limit(Nvml(driver)) as limit:
        for each in watts:
            limit(each)
        yield


def test_the_limit_holds_inside_and_the_old_one_comes_back(driver):
    driver.limits[2] = 650_000
    with pytest.raises(KeyError), limited(driver, 450):
        assert driver.limits == {1: 450_000, 2: 450_000}
        raise KeyError
    assert driver.limits == {1: 700_000, 2: 650_000}


@pytest.mark.parametrize("count", [0, 1])
def test_a_gpu_that_the_training_does_not_use_keeps_its_limit(driver, count):
    with power_limit(Nvml(driver), count) as limit:
        limit(450)
        assert driver.limits == {1: 450_000 if count else 700_000, 2: 700_000}
    assert driver.limits == {1: 700_000, 2: 700_000}


def test_another_limit_at_another_hour_is_asked_for_once(driver):
    with limited(driver, 450, 450, 300):
        assert driver.limits == {1: 300_000, 2: 300_000}
        assert driver.calls.count("nvmlDeviceSetPowerManagementLimit") == 2 * driver.cards
    with limited(driver, 300, 0):
        assert driver.limits == {1: 700_000, 2: 700_000}, "by day each has its own"


def test_a_card_that_refuses_another_limit_gets_its_own_back_all_the_same(driver, caplog):
    with power_limit(Nvml(driver)) as limit:
        limit(450)
        driver.may_set_limits = False
        limit(300)
        assert driver.limits == {1: 450_000, 2: 450_000} and "keeps its power limit" in caplog.text
        driver.may_set_limits = True
    assert driver.limits == {1: 700_000, 2: 700_000}


def test_a_refusal_is_a_warning_and_training_goes_on(driver, caplog):
    driver.may_set_limits = False
    with limited(driver, 450):
        pass
    assert caplog.text.count("Insufficient Permissions") == driver.cards
    assert driver.calls.count("nvmlDeviceSetPowerManagementLimit") == driver.cards, "nothing is set back"


def test_without_a_gpu_a_limit_has_no_effect_and_says_so(caplog, monkeypatch):
    with caplog.at_level(logging.WARNING), limited(Driver(cards=0), 450):
        pass
    assert "450 W" in caplog.text


def test_no_limit_calls_nothing(driver):
    with limited(driver, 0):
        pass
    assert not driver.calls
