"""A channel hears of its trainings: real ones are paused, killed and finished, and this is what is noted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from yanmo.nights.publishing import rows_shown
from yanmo.store.file_store import FileStore
from yanmo.store.runs.failure_card import read_cards
from yanmo.store.runs.unfinished import GIVEN_UP, OPEN, TRAINED, Training, read_unfinished

ROOT = Path(__file__).parents[4]
Options = Mapping[str, int | str]


def command(store: Path, options: Options, run_id: str, *flags: str) -> list[str]:
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    run = [f"--run-id={run_id}"] if run_id else []
    program = [sys.executable, "-m", "yanmo.train"]
    return [*program, f"--store={store}", "--metrics-port=-1", *given, *run, *flags]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "components")}


def train(store: Path, options: Options, run_id: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(store, options, run_id, *flags), env=ENVIRONMENT, capture_output=True, text=True
    )


def killed_at_its_beginning(store: Path, options: Options, run_id: str) -> None:
    """A run that is killed (-9) as soon as the channel has heard of it, before any checkpoint."""
    process = subprocess.Popen(
        command(store, options, run_id),
        env=ENVIRONMENT,
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


def test_a_training_is_noted_from_its_beginning_until_it_is_judged(store: Path, tiny: Options) -> None:
    """It pauses, goes on in another run, and is then trained and waits for its verdict."""
    options = {**tiny, "steps": 40, "checkpoint_steps": 2}
    closed = train(store, options, "by-day", "--night=03:00-03:01", "--timezone=UTC")
    assert closed.returncode == 0 and noted(store) == (), f"its hours had not begun: {closed.stderr}"
    first = subprocess.Popen(
        command(store, options, "night-1"), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
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
    """On the index, the night's own page, and in the feed, as what somebody must look at."""
    place = FileStore(store)
    row = next(row for row in rows_shown(place, "dev") if row.run_id == run_id)
    assert row.state == "given up" and "is given up: 3 runs in a row" in row.sentence.en
    assert "已放弃" in row.sentence.zh
    page = place.read(f"nights/dev/{row.name}.html")[0].decode()
    assert "given up" in page and "弃" in page
    feed = place.read("nights/dev/feed.xml")[0].decode()
    assert 'term="given up"' in feed and 'term="look"' in feed


def test_what_three_runs_could_not_bring_further_is_given_up(store: Path, tiny: Options) -> None:
    for night in range(3):
        killed_at_its_beginning(store, tiny, f"night-{night}")
    fourth = train(store, tiny, "night-3")
    assert fourth.returncode == 65
    assert "is given up: 3 runs in a row came no further than its beginning" in fourth.stderr
    (training,) = noted(store)
    assert training.state == GIVEN_UP and f"train_unfinished=train/{training.key[:12]}" in fourth.stderr
    assert "is given up" in read_cards(FileStore(store), "train", training.key)[0].why
    assert_told_as_given_up(store, "night-3")
    assert train(store, tiny, "night-4").returncode == 65, "the same again is refused at once"
    assert train(store, {**tiny, "seed": 7}, "night-4").returncode == 0, "another one is trained"
    assert train(store, tiny, "").returncode == 0, "and so is this one by a person"
    assert [one.state for one in noted(store)] == [TRAINED]


def test_the_third_run_that_fails_without_progress_says_so_itself(
    store: Path, tiny: Options, tmp_path: Path
) -> None:
    """A full record of what is wrong: an option of the machine that no machine can give."""
    flags = ("--memory-gib=0.001",)
    ended = [train(store, tiny, f"night-{night}", *flags) for night in range(3)]
    assert {one.returncode for one in ended} == {78}, ended[0].stderr
    assert "given up" not in ended[1].stderr
    assert "is given up: 3 runs in a row came no further" in ended[2].stderr
    assert "the last one ended with: " in noted(store)[0].why
    assert noted(store)[0].state == GIVEN_UP
    assert_told_as_given_up(store, "night-2")


@pytest.mark.parametrize("most", [0, 1])
def test_how_many_runs_may_come_no_further_is_an_option(store: Path, tiny: Options, most: int) -> None:
    killed_at_its_beginning(store, tiny, "night-1")
    assert train(store, tiny, "night-2", f"--stalled-runs={most}").returncode == (65 if most else 0)
