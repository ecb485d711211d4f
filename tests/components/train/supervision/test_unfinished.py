"""A channel hears of its trainings: real ones are paused, killed and finished, and this is what is noted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import training_runs

from yanmo.nights.index import rows_shown
from yanmo.store.file_store import FileStore
from yanmo.store.runs.failure_card import read_card
from yanmo.store.runs.unfinished import (
    GIVEN_UP,
    OPEN,
    TRAINED,
    Training,
    change_unfinished,
    read_unfinished,
)
from yanmo.tools.store.gc_planner import SETTLED_SECONDS

Options = Mapping[str, int | str]


def command(store: Path, options: Options, run_id: str, *flags: str) -> list[str]:
    run = {"run_id": run_id} if run_id else {}
    return [*training_runs.command(store, {**options, **run}), *flags]


def train(store: Path, options: Options, run_id: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(store, options, run_id, *flags), capture_output=True, text=True)


def killed_at_its_beginning(store: Path, options: Options, run_id: str) -> None:
    """A run that is killed (-9) as soon as the channel has heard of it, before any checkpoint."""
    process = subprocess.Popen(
        command(store, options, run_id),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while run_id not in tries(store):
        assert process.poll() is None, "it ended before it began"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tries(store: Path) -> list[str]:
    return [one.run_id for each in noted(store) for one in each.tries]


def noted(store: Path) -> tuple[Training, ...]:
    return read_unfinished(FileStore(store), "dev").trainings


@pytest.mark.process
def test_a_training_is_noted_from_its_beginning_until_it_is_judged(store: Path, tiny: Options) -> None:
    """It pauses, goes on in another run, and is then trained and waits for its verdict."""
    options = {**tiny, "steps": 40, "checkpoint_steps": 2}
    closed = train(store, options, "by-day", "--night=03:00-03:01", "--timezone=UTC")
    assert closed.returncode == 0 and noted(store) == (), f"its hours had not begun: {closed.stderr}"
    first = subprocess.Popen(command(store, options, "night-1"), stderr=subprocess.PIPE, text=True)
    while not list(store.glob("runs/train/*/checkpoints/step-*")):
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate()
    assert first.returncode == 75, said
    (training,) = noted(store)
    assert training.state == OPEN and training.run_id == "night-1" and 0 < training.step < 40
    assert [one.checkpoint for one in training.tries] == [""]
    assert training.options["steps"] == 40 and training.inputs["model"] is None
    assert train(store, options, "night-2").returncode == 0
    (after,) = noted(store)
    assert after.state == TRAINED and after.key == training.key
    assert (store / f"cas/train/{training.key}/MANIFEST.json").is_file()


@pytest.mark.process
def test_a_paused_training_goes_on_from_its_checkpoint_after_the_tightest_gc(
    store: Path, tiny: Options, other_text: Callable[[Path], object]
) -> None:
    """The channel has other data by then, so that nothing else keeps what it was begun with."""
    options = {**tiny, "steps": 60, "checkpoint_steps": 2}
    first = subprocess.Popen(command(store, options, "night-1"), stderr=subprocess.DEVNULL)
    while not list(store.glob("runs/train/*/checkpoints/step-*")):
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 75
    (training,) = noted(store)
    cache = training.inputs["token_cache"]
    assert cache is not None
    other_text(store)
    time.sleep(SETTLED_SECONDS)
    program = [sys.executable, "-m", "yanmo.cli", "store", "gc", "--delete", f"--store={store}"]
    done = subprocess.run([*program, "--older-than=0", "--abandoned=0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = train(store, options, "night-2", f"--token-cache=tokenize/{cache.key}")
    assert again.returncode == 0, again.stderr
    assert re.search(rf"(resum|from).*\b{training.step}\b", again.stderr), again.stderr
    assert [(one.key, one.state) for one in noted(store)] == [(training.key, TRAINED)]


@pytest.mark.process
def test_a_training_by_hand_is_nobodys_but_finishes_one_that_is_the_channels(
    store: Path, tiny: Options
) -> None:
    killed_at_its_beginning(store, tiny, "night-1")
    assert [one.state for one in noted(store)] == [OPEN]
    assert train(store, {**tiny, "seed": 7}, "").returncode == 0
    assert [one.state for one in noted(store)] == [OPEN], "another one, by hand"
    assert train(store, tiny, "").returncode == 0
    assert [one.state for one in noted(store)] == [TRAINED], "the channel's next run judges it"


def assert_told_as_given_up(store: Path, run_id: str) -> None:
    """On the index, in words and by its seal."""
    place = FileStore(store)
    row = next(row for row in rows_shown(place, "dev") if row.run_id == run_id)
    assert row.state == "given up" and "is given up: 3 runs in a row" in row.sentence.en
    assert "已放弃" in row.sentence.zh
    page = place.read("nights/dev/index.html")[0].decode()
    assert "given up" in page and ">弃<" in page


@pytest.mark.process
def test_what_three_runs_could_not_bring_further_is_given_up(store: Path, tiny: Options) -> None:
    for night in range(3):
        killed_at_its_beginning(store, tiny, f"night-{night}")
    fourth = train(store, tiny, "night-3")
    assert fourth.returncode == 65
    assert "is given up: 3 runs in a row came no further than its beginning" in fourth.stderr
    (training,) = noted(store)
    assert training.state == GIVEN_UP
    card = read_card(FileStore(store), "train", training.key).why
    resumed = f"a run of the channel whose form says train_unfinished={training.name} goes on with it"
    assert "is given up" in card and resumed in card and resumed in fourth.stderr, "it is not cut off"
    assert_told_as_given_up(store, "night-3")
    again = train(store, tiny, "night-4")
    assert again.returncode == 65, "the same again is refused at once"
    assert resumed in again.stderr
    assert train(store, {**tiny, "seed": 7}, "night-5").returncode == 0, "another one is trained"
    assert train(store, tiny, "").returncode == 0, "and so is this one by a person"
    assert [one.state for one in noted(store)] == [TRAINED]


@pytest.mark.process
@pytest.mark.parametrize("mended_by", ["a person", "new data"])
def test_what_was_given_up_goes_on_when_it_is_taken_up_again_and_new_data_by_themselves(
    store: Path, tiny: Options, other_text: Callable[[Path], object], mended_by: str
) -> None:
    """Three nights on a broken node; then the node is mended, or more texts come first."""
    longer, broken = {**tiny, "steps": 40, "checkpoint_steps": 2}, ("--memory-gib=0.001",)
    lost = [train(store, longer, f"night-{night}", *broken) for night in range(3)][-1]
    (given_up,) = noted(store)
    assert given_up.state == GIVEN_UP and "the last one ended with: " in given_up.why
    assert lost.returncode == 78 and "is given up: 3 runs in a row came no further" in lost.stderr
    assert_told_as_given_up(store, "night-2")
    if mended_by == "new data":
        other_text(store)
        assert train(store, tiny, "night-3").returncode == 0, "nobody has to do anything"
        assert [one.state for one in noted(store)] == [GIVEN_UP, TRAINED]
        return
    assert f"train_unfinished={given_up.name} goes on with it" in lost.stderr
    change_unfinished(FileStore(store), "dev", lambda record: record.with_(given_up.resumed()))  # as resolve
    (open_again,) = noted(store)
    assert open_again.state == OPEN and open_again.tries == (), "its count begins at none"
    for night in (4, 5):
        assert train(store, longer, f"night-{night}", *broken).returncode == 78
        assert noted(store)[0].state == OPEN, "not at once"
    assert train(store, longer, "mended").returncode == 0
    assert [(one.key, one.state) for one in noted(store)] == [(given_up.key, TRAINED)]
