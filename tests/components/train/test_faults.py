"""Whole stages with something going wrong in a rank: poisoned data, no memory, a rank that stands still."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chaos import null_gpu
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


@pytest.mark.skipif(bool(null_gpu.absent()), reason=null_gpu.absent() or "there is one")
@pytest.mark.skipif(not null_gpu.has_device_file(), reason="needs root and unshare")
def test_a_card_that_is_full_halves_it_too(store, tiny):
    """The same with torch's allocator for CUDA, on a card of 0.13 GiB."""
    larger = {"layers": 4, "width": 128, "heads": 4, "kv_heads": 2, "head_width": 32, "feed_forward": 256}
    options = {**tiny, **larger, "device": "cuda", "context": 128, "batch_rows": 64, "memory_gib": 10}
    card = [sys.executable, "-m", "chaos.null_gpu", "--arithmetic", "--gibibytes=0.13", "--"]
    asked = [*card, *command(store, {**options, "micro_batch": 64, "compile": "false"})]
    tests = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": tests}
    done = subprocess.run(asked, capture_output=True, text=True, timeout=560, env=env)
    assert done.returncode == 0, done.stderr
    assert "attention=varlen-flash" in done.stderr
    assert "out of memory with a micro batch of 64 rows on rank 0; going on with 32 rows" in done.stderr
    losses = [x["loss"] for x in lines_of(output_of(store, "train")) if "loss" in x]
    assert len(losses) == 8 and losses[-1] < losses[0] - 0.1


@pytest.mark.skipif(bool(null_gpu.absent()), reason=null_gpu.absent() or "there is one")
@pytest.mark.skipif(not null_gpu.has_device_file(), reason="needs root and unshare")
@pytest.mark.parametrize(("capability", "precision"), [("7.5", "fp16"), ("8.6", "bf16")])
def test_a_preset_trains_in_the_16_bits_that_the_card_has(store, tiny, capability, precision):
    """A T4 or RTX 20 emulates bf16 in software; fp16 has to scale the loss."""
    card = [sys.executable, "-m", "chaos.null_gpu", "--arithmetic", f"--capability={capability}", "--"]
    options = {**tiny, "preset": "gpu-8gb", "compile": "false", "optimizer": "muon"}
    asked = [*card, *command(store, {name: options[name] for name in options if name != "device"})]
    tests = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": tests}
    done = subprocess.run(asked, capture_output=True, text=True, timeout=560, env=env)
    assert done.returncode == 0, done.stderr
    assert f"precision={precision}, decided here" in done.stderr
    losses = [x["loss"] for x in lines_of(output_of(store, "train")) if "loss" in x]
    assert len(losses) == 8 and losses[1] < losses[0] - 0.03  # no step was passed over


def test_a_frozen_rank_ends_the_run_for_another_try(store, tiny):
    """One alone, which nobody waits for; test_ending.py has one of two."""
    options = {**tiny, "steps": 3000, "hang_seconds": 40, "checkpoint_steps": 2}
    process = subprocess.Popen(command(store, options), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: begun(store, 5))
    victim = int(heartbeat_path(begun(store, 5), 0).read_text())
    os.kill(victim, signal.SIGSTOP)
    log = process.communicate(timeout=400)[1]
    assert process.returncode == 75 and "stands still" in log, log
    wait_for(lambda: not is_alive(victim), 30)
    again = stage(store, {**options, "max_seconds": 1})
    assert again.returncode == 0 and "resuming at step" in again.stderr, again.stderr


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
