"""A failed stage: its last line, its card in store and termination message until the key is committed."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import toy_stage
from hypothesis import given
from hypothesis import strategies as st

from yanmo.resolve.config import STAGE
from yanmo.stage import failing
from yanmo.stage.failing import leave_message
from yanmo.stage.run import main
from yanmo.store.opening import open_store
from yanmo.store.output import find_output
from yanmo.store.runs.failure_card import Card


def last_line(cause: str, code: int = 78) -> str:
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign]
    log = logging.getLogger(failing.__name__)
    log.addHandler(handler)
    try:
        failing.last_words(STAGE, code, cause, "")
    finally:
        log.removeHandler(handler)
    return said[-1].getMessage()


@given(st.lists(st.text("ab/:.", max_size=70), max_size=12))
def test_the_last_line_fits_into_kfp_s_log_view(words: list[str]) -> None:
    line = last_line(" ".join(words))
    assert len(f"00:00:00 evaluate {line}") <= 80 and line.startswith("resolve error 78:")


@pytest.fixture
def message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that Kubernetes makes in a container."""
    path = tmp_path / "termination-log"
    path.touch()
    monkeypatch.setattr(failing, "TERMINATION_LOG", path)
    return path


def test_the_termination_message_ends_with_the_command_however_long_it_is(message: Path) -> None:
    card = Card(
        stage="train",
        exit_code=75,
        why="研墨" * 300,
        others=("研墨" * 300,) * 3,
        command="yanmo train --steps=9",
    )
    leave_message(card.lines())
    said = message.read_text(encoding="utf-8")
    assert len(said.encode()) <= 4096
    assert said.startswith("train failed with exit code 75") and said.endswith("yanmo train --steps=9\n")


def test_the_termination_message_has_the_whole_of_a_reason_that_the_last_line_cuts(message: Path) -> None:
    cause = "asked to stop by a signal to another node or a rank"
    assert last_line(cause, 75).endswith("...")
    assert message.read_text(encoding="utf-8").splitlines()[1] == f"why: {cause}"
    last_line("asked to stop", 143)
    assert message.read_text(encoding="utf-8").splitlines() == ["resolve error 143: asked to stop"]


def test_a_failed_stage_leaves_its_card_until_its_key_is_committed(
    tmp_path: Path, message: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--store={tmp_path}/store", "--metrics-port=-1", "--end=data", "--run-id=5a1b"]
    assert main(toy_stage.STAGE, toy_stage.STEPS, flags) == 65
    (path,) = (tmp_path / "store").glob("runs/toy/*/FAILURE.json")
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept["why"].startswith("line 3 of raw.txt: not a poem") and kept["run_id"] == "5a1b"
    assert message.read_text().splitlines()[:2] == [
        "toy failed with exit code 65 (an input is wrong)",
        f"why: {kept['why']}",
    ]
    monkeypatch.setenv("TOY_MENDED", "yes")
    capsys.readouterr()
    assert main(toy_stage.STAGE, toy_stage.STEPS, [*flags, "--force"]) == 0
    assert "an earlier try ended at " in capsys.readouterr().err
    assert not path.exists()
    assert find_output(open_store(f"{tmp_path}/store"), "toy", path.parent.name)


def test_wrong_options_leave_no_card_in_a_store_but_a_message(tmp_path: Path, message: Path) -> None:
    assert main(toy_stage.STAGE, toy_stage.STEPS, [f"--store={tmp_path}/store", "--nonsense"]) == 64
    assert "unknown option --nonsense" in message.read_text()
    assert not list(tmp_path.glob("store/runs/*/*/FAILURE.json"))
