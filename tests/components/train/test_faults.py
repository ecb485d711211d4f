"""Whole stages with something going wrong in a rank: poisoned data, no memory, a rank that stands still."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from processes import is_alive
from training_runs import begun, command, environment, lines_of, stage, wait_for
from training_runs import model_of as output_of

from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import heartbeat_path

pytestmark = pytest.mark.fault


def test_rows_poisoned_on_one_rank_are_skipped_by_all_together(store, tiny, tmp_path, faults):
    options = {**tiny, "ranks": 2, "start": "random"}
    bad = faults.rows_of(faults.samples_of(store, options), [2 * 8 + 7])  # the last row of step 3: rank 1's
    site = faults.install(tmp_path / "site", f"faults.poison({bad})")
    done = stage(store, options, site)
    assert done.returncode == 0, done.stderr
    model = output_of(store, "train")
    losses = {x["step"]: x["loss"] for x in lines_of(model) if "loss" in x}
    assert losses[3] is None and None not in [losses[n] for n in range(1, 9) if n != 3]
    (event,) = model.manifest.metadata["events"]
    assert (event["event"], event["step"], event["first_sample"]) == ("skipped", 3, 16)


def test_out_of_memory_halves_the_micro_batch_until_it_fits(store, trained_store, tiny, tmp_path, faults):
    site = faults.install(tmp_path / "site", "faults.small_memory(2)")
    done = stage(store, tiny, site)
    assert done.returncode == 0, done.stderr
    assert "going on with 4 rows, 2 forwards" in done.stderr
    assert "going on with 2 rows, 4 forwards" in done.stderr
    model = output_of(store, "train")
    events = model.manifest.metadata["events"]
    assert [(event["event"], event["micro_batch"]) for event in events] == [("settings", 4), ("settings", 2)]
    assert all("out of memory" in event["reason"] for event in events)
    losses = (
        [x["loss"] for x in lines_of(m) if "loss" in x] for m in (model, output_of(trained_store, "train"))
    )
    assert all(abs(a - b) < 1e-4 for a, b in zip(*losses, strict=True))


def test_a_single_row_that_does_not_fit_is_the_machines_fault(store, tiny, tmp_path, faults):
    site = faults.install(tmp_path / "site", "faults.small_memory(0)")
    done = stage(store, {**tiny, "micro_batch": 1}, site)
    assert done.returncode == 78 and "with one row" in done.stderr, done.stderr


def test_a_frozen_rank_ends_the_run_for_another_try(store, tiny, tmp_path):
    # One rank and two at the same time, as each waits a minute for a sign of life.
    runs = {1: store, 2: Path(shutil.copytree(store, tmp_path / "of-two-ranks"))}
    options = {
        ranks: {**tiny, "steps": 3000, "ranks": ranks, "hang_seconds": 40, "checkpoint_steps": 2}
        for ranks in runs
    }
    processes, folders, victims = {}, {}, {}
    for ranks, place in runs.items():
        started = command(place, options[ranks])
        processes[ranks] = subprocess.Popen(started, stderr=subprocess.PIPE, text=True)
        wait_for(lambda place=place: begun(place, 5))
        folders[ranks] = begun(place, 5)
        victims[ranks] = int(heartbeat_path(folders[ranks], ranks - 1).read_text())
        os.kill(victims[ranks], signal.SIGSTOP)
    logs = {ranks: process.communicate(timeout=400)[1] for ranks, process in processes.items()}
    for ranks, place in runs.items():
        assert processes[ranks].returncode == 75, logs[ranks]
        wait_for(lambda ranks=ranks: not is_alive(victims[ranks]), 30)
        again = stage(place, {**options[ranks], "max_seconds": 1})
        assert again.returncode == 0 and "resuming at step" in again.stderr, again.stderr
    assert "stands still" in logs[1]
    assert "no progress for" in logs[2], "the other one says what it waited for"
    # Its stack, wherever in a step it waited: for gradients, or for what the ranks agree on after them.
    assert "_train_step" in (folders[2] / "workers.log").read_text(errors="replace")


def test_max_seconds_pauses_and_a_run_outside_of_its_night_does_not_begin(store, tiny):
    done = stage(store, {**tiny, "steps": 100_000, "max_seconds": 1})
    assert done.returncode == 0 and "--max-seconds 1: saved at step" in done.stderr, done.stderr
    assert "paused" in done.stderr
    hour = time.gmtime().tm_hour
    night = f"{(hour + 2) % 24:02d}:00-{(hour + 4) % 24:02d}:00"
    day = stage(store, {**tiny, "night": night})
    assert day.returncode == 0 and "has not begun" in day.stderr, day.stderr


def test_the_benchmark_prints_an_options_file_and_trains_nothing(store, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler, which would take half a minute to try
    options = {**tiny, "batch_rows": 1, "benchmark": "true"}  # two settings; test_grid.py looks at all
    done = stage(store, options)
    assert done.returncode == 0 and "trains no model" in done.stderr, done.stderr
    path = tmp_path / "best.yaml"
    path.write_text(done.stdout)
    best = load(TrainConfig, [f"--config={path}", "--batch-rows=1"], "yanmo train")
    assert best.micro_batch >= 1 and best.threads >= 1
    table = [line for line in done.stdout.splitlines() if line.startswith("#")]
    assert len(table) == 3, "a heading and two settings"
    assert " backend=deepspeed" in done.stdout and " backend=torch" in done.stdout
    assert not list(store.glob("pointers/dev/train.json"))


ELASTIC = [
    {"ranks": 2, "zero_stage": 1},
    {"ranks": 1, "zero_stage": 2, "micro_batch": 4},
    {"ranks": 2, "zero_stage": 3, "micro_batch": 2},
]


def test_other_ranks_and_stages_see_every_document_once_per_epoch(store, tiny, tmp_path, faults):
    options = {**tiny, "steps": 80, "batch_rows": 16, "log_every": 1}
    trail = tmp_path / "rows"
    site = faults.install(tmp_path / "site", f"faults.record_rows({str(trail)!r})")
    for number, change in enumerate(ELASTIC):
        process = subprocess.Popen(
            command(store, {**options, **change}),
            stderr=subprocess.PIPE,
            text=True,
            env=environment(site),
        )
        if number < 2:
            wait_for(lambda until=20 * number + 20: begun(store, until))
            process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=400)
        assert process.returncode == (75 if number < 2 else 0), log
    rows = [json.loads(x) for p in tmp_path.glob("rows.*") for x in p.read_text().splitlines()]
    rows.sort()
    assert [first for first, _, _ in rows] == [0, *_ends(rows)[:-1]], "each sample once, none left out"
    assert _ends(rows)[-1] == 80 * 16
    samples = faults.samples_of(store, options)
    seen = [one for _, _, ids in rows for one in ids]
    everyone = sorted(samples.index.ids.tolist())
    for epoch in (0, 1):
        count = len(samples.plan(epoch))
        assert count < 80 * 16 / 2, "the run holds two whole epochs"
        first = epoch * len(samples.plan(0))
        expected = samples.document_ids(first, count)  # pieces of documents, in order
        assert seen[: len(expected)] == expected
        assert sorted(set(expected)) == everyone
        seen = seen[len(expected) :]
    losses = [x["loss"] for x in lines_of(output_of(store, "train")) if "loss" in x]
    assert len(losses) == 80 and losses[-1] < losses[0] - 0.1


def _ends(rows: list) -> list[int]:
    return [first + count for first, count, _ in rows]
