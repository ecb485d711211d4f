"""`yanmo sweep` whole: real stages on a little text, stopped, killed, with failures, beside gc."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

ROOT = Path(__file__).parents[3]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "components"), str(ROOT / "pipelines")])}
SMALL = [
    "curate.sources=text.jsonl",
    "curate.max_filter_share=0.6",
    "curate.workers=1",
    "tokenize.vocab_size=4096",
    "tokenize.workers=1",
    "tokenize.agreement_sentences=50",
    "train.steps=4",
    "train.layers=1",
    "train.width=64",
    "train.heads=1",
    "train.feed_forward=64",
    "train.batch_rows=8",
    "train.ranks=1",
    "train.backend=torch",
    "train.warmup_steps=2",
    "evaluate.bootstrap_draws=100",
    "evaluate.workers=1",
]
GRID = "--grid=train.adam_learning_rate=0.01,0.03"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some text, and the store of all tests of this file: later ones find what is made."""
    folder = tmp_path_factory.mktemp("sweep")
    taken: dict[str, int] = defaultdict(int)
    with (
        zstandard.open(ROOT / "corpus/small.jsonl.zst", "rt", encoding="utf-8") as lines,
        (folder / "text.jsonl").open("w", encoding="utf-8") as out,
    ):
        for line in lines:
            taken[json.loads(line)["genre"]] += 1
            if taken[json.loads(line)["genre"]] <= 120:
                out.write(line)
    return folder


def command(*flags: str, base: list[str] = SMALL) -> list[str]:
    start = [sys.executable, "-m", "yanmo.cli", "sweep", "--store=store", "--channel=demo", "--csv=sweep.csv"]
    return [*start, *(f"--set={setting}" for setting in base), *flags]


def sweep(folder: Path, *flags: str, base: list[str] = SMALL) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*flags, base=base), cwd=folder, env=ENV, capture_output=True, text=True)


def made(said: str) -> list[str]:
    """The stages that made something, in their order."""
    names = re.findall(r"^\S+ (\w+) +committed (\w+)/", said, flags=re.MULTILINE)
    return [stage for stage, output in names if stage == output]


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "sweep.csv").read_text(encoding="utf-8").splitlines()))


def pointers(folder: Path) -> list[Path]:
    return sorted((folder / "store").glob("pointers/**/*.json"))


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a sweep and waits until its log says something."""
    started: list[subprocess.Popen[str]] = []

    def begin(until: str, *flags: str) -> subprocess.Popen[str]:
        with (folder / "log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command(*flags),
                cwd=folder,
                env=ENV,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        started.append(process)
        while until not in (folder / "log").read_text(encoding="utf-8"):
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
            time.sleep(0.05)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout
        process.stdout.close()


@pytest.mark.road
def test_a_sweep_makes_what_is_shared_once_and_the_same_command_makes_nothing(folder: Path) -> None:
    first = sweep(folder, GRID, "--seeds=2")
    assert first.returncode == 0, first.stderr[-3000:]
    assert made(first.stderr) == ["curate", "balance", "tokenize", *["train", "evaluate"] * 4]
    assert pointers(folder) == [], "no champion and no latest output"
    assert re.search(r"3 left: about .*, if none of them is made already", first.stderr)

    again = sweep(folder, GRID, "--seeds=2")
    assert again.returncode == 0 and made(again.stderr) == []
    assert again.stdout == first.stdout and again.stderr.count("found, made before") == 4

    heading, best, other = first.stdout.splitlines()[:3]
    assert heading.split()[:3] == ["train.adam_learning_rate", "seeds", "mean"]
    assert "best" in best and re.search(r"2 of 2  \S+ ± \S+ +\+\d\.\d{3} ± ", other)
    found = rows(folder)
    assert [row["train.seed"] for row in found] == ["0", "0", "1", "1"]
    means: dict[str, list[float]] = defaultdict(list)
    for row in found:
        means[row["train.adam_learning_rate"]].append(float(row["mean"]))
    assert best.split()[0] == min(means, key=lambda rate: sum(means[rate]))
    assert f"{sum(means[best.split()[0]]) / 2:.3f} ±" in best
    assert "valid split" in first.stdout and "WARNING" not in first.stdout


@pytest.mark.road
def test_the_winning_command_finds_its_training_and_the_gate_decides(folder: Path) -> None:
    said = sweep(folder, GRID, "--seeds=2").stdout
    (line,) = [line for line in said.splitlines() if line.startswith("  yanmo run ")]
    words = [sys.executable, "-m", "yanmo.cli", *shlex.split(line)[1:]]
    ended = subprocess.run(words, cwd=folder, env=ENV, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "train" not in made(ended.stderr) and "evaluate" in made(ended.stderr)
    assert (folder / "store/pointers/demo/champion.json").is_file()


@pytest.mark.road
def test_a_setting_that_fails_stops_no_other_and_its_reason_is_in_the_table(folder: Path) -> None:
    before = pointers(folder)
    base = [setting for setting in SMALL if "max_filter_share" not in setting]
    ended = sweep(folder, "--grid=curate.max_filter_share=0,0.6", "--seeds=2", base=base)
    assert ended.returncode == 65, ended.stderr[-3000:]
    assert ended.stderr.count("curate error 65: ") == 1, "a shared stage is not tried again"
    failed = [line for line in ended.stdout.splitlines() if line.startswith("failed: ")]
    assert len(failed) == 2 and "curate.max_filter_share=0, seed 1: curate ended with 65: " in failed[1]
    assert re.search(r"^0\.6 +2 of 2 ", ended.stdout, re.MULTILINE)
    states = [(row["state"], row["exit_code"]) for row in rows(folder)]
    assert states == [("failed", "65"), ("done", "0")] * 2 and pointers(folder) == before


@pytest.mark.road
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order_with_the_table_so_far(
    folder: Path, start: Callable[..., subprocess.Popen[str]], signum: signal.Signals
) -> None:
    process = start("making train/", GRID, "--seeds=2", f"--set=train.token_noise=0.{signum:02d}")
    process.send_signal(signum)
    out, _ = process.communicate()
    assert process.returncode == 75
    assert "not run: 3 of 4; the same command goes on" in out
    assert [row["state"] for row in rows(folder)] == ["stopped", *["not run"] * 3]


@pytest.mark.road
def test_after_kill_9_the_same_command_makes_only_what_is_missing(
    folder: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    more = (GRID, "--seeds=2", "--set=train.token_noise=0.05")
    process = start("run 2 of 4: 1", *more)  # its bits: two are measured
    process.kill()
    process.communicate()
    ended = sweep(folder, *more)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stderr.count("found, made before") == 2
    assert [name for name in made(ended.stderr) if name != "evaluate"] == ["train"] * 2


@pytest.mark.road
def test_gc_in_a_loop_takes_nothing_older_than_seconds_from_a_sweep(
    folder: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start("run 1 of 2", GRID, "--set=train.token_noise=0.07")
    gc = [sys.executable, "-m", "yanmo.cli", "store", "gc", "--store=store", "--older-than=10s", "--delete"]
    while process.poll() is None:
        subprocess.run(gc, cwd=folder, env=ENV, capture_output=True)
    assert process.returncode == 0, (folder / "log").read_text(encoding="utf-8")[-3000:]
    assert [row["state"] for row in rows(folder)] == ["done"] * 2
