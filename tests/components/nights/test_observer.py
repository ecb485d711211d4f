"""What the pages of nights hear of a real stage: each of its ends, and nothing of a run that is no night."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import toy_stage

from yanmo.common.errors import UsageError
from yanmo.nights.index import rows_shown
from yanmo.nights.observer import NightObserver
from yanmo.nights.record import read_record
from yanmo.options.command_line import load
from yanmo.stage.run import main
from yanmo.store.opening import open_store


def toy(root: Path, *more: str) -> list[str]:
    return [
        "--store",
        str(root / "s"),
        "--channel",
        "nightly",
        "--run-id",
        "run-1",
        "--metrics-port=-1",
        *more,
    ]


@pytest.mark.parametrize(
    ("end", "code", "state"),
    [
        ("done", 0, "done"),
        ("pause", 0, "paused"),
        ("stopped", 75, "paused"),
        ("data", 65, "failed"),
        ("bug", 70, "failed"),
    ],
)
def test_each_end_of_a_stage_is_told(tmp_path: Path, end: str, code: int, state: str) -> None:
    assert main(toy_stage.STAGE, toy_stage.STEPS, toy(tmp_path, "--end", end)) == code
    store = open_store(str(tmp_path / "s"))
    [row] = rows_shown(store, "nightly")
    assert (row.run_id, row.state) == ("run-1", state) and row.seconds >= 0
    record = read_record(store, "nightly", "run-1")
    assert record is not None and list(record.stages) == ["toy"]
    assert re.fullmatch("[0-9a-f]{64}", record.stages["toy"].key), "what it worked on"
    if state == "failed":
        page = store.read("nights/nightly/index.html")[0].decode()
        assert f"toy failed with exit code {code}" in page and "why: " in page


@pytest.mark.parametrize("more", [["--run-id", ""], ["--pointer", "none"]])
def test_what_is_no_night_leaves_no_page(tmp_path: Path, more: list[str]) -> None:
    assert main(toy_stage.STAGE, toy_stage.STEPS, toy(tmp_path, *more)) == 0
    assert not list(open_store(str(tmp_path / "s")).list("nights"))


def test_a_persons_typo_is_no_failed_night_and_a_schedules_is(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s"))
    for last, count in (("", 0), ("promote", 1)):
        options = load(toy_stage.STAGE.config, toy(tmp_path), "yanmo toy")
        NightObserver("toy", options, 0.0, last=last).failed(UsageError("--sources is empty"), "")
        assert len(rows_shown(store, "nightly")) == count


def test_a_signal_terminates_a_run_and_fails_none(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s"))
    NightObserver("toy", load(toy_stage.STAGE.config, toy(tmp_path), "yanmo toy"), 0.0).stopped()
    assert [row.state for row in rows_shown(store, "nightly")] == ["terminated"]
    assert main(toy_stage.STAGE, toy_stage.STEPS, toy(tmp_path)) == 0  # as after the UI's Retry
    assert [row.state for row in rows_shown(store, "nightly")] == ["done"]


def test_a_store_that_is_lost_in_the_middle_fails_as_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "nights").write_text("in the way")
    assert main(toy_stage.STAGE, toy_stage.STEPS, toy(tmp_path)) == 0
    assert "the index of nights of channel nightly is behind" in caplog.text
