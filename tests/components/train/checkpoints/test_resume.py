"""A training that was stopped and went on makes the same losses, to the last digit, in one process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from yanmo.common.errors import DataError
from yanmo.train import job
from yanmo.train.checkpoints import checkpoint

pytestmark = pytest.mark.usefixtures("one_rank")


def lines(folder: Path) -> list[dict]:
    """metrics.jsonl without what depends on the clock."""
    found = [json.loads(x) for x in (folder / job.METRICS).read_text(encoding="utf-8").splitlines()]
    clock = {"cpu_seconds", "seconds", "seconds_left", "phase_seconds"}
    clock |= {"tokens_per_second", "samples_per_second", "flops_per_second"}
    clock |= {"memory_bytes", "memory_peak_bytes"}
    return [{k: v for k, v in line.items() if k not in clock} for line in found]


@pytest.mark.long(few=2)
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "muon", "precision": "fp32"},
        {"optimizer": "muon", "precision": "bf16", "micro_batch": 4},
        {"optimizer": "adamw", "precision": "fp32", "zero_stage": 2, "start": "random", "log_every": 3},
        {"optimizer": "muon", "precision": "bf16", "zero_stage": 2, "micro_batch": 2},
        {"optimizer": "muon", "precision": "fp32", "token_noise": 0.3},
        {"optimizer": "muon", "precision": "bf16", "zero_stage": 3, "micro_batch": 4},
        {"frequent_tokens": 60, "backend": "torch", "precision": "fp32"},
        {"frequent_tokens": 60, "zero_stage": 3, "precision": "bf16"},
        {
            "optimizer": "adamw",
            "precision": "fp32",
            "backend": "torch",
            "monitor": "full",
            "monitor_every": 3,
        },
    ],
    ids=lambda o: "-".join(map(str, o.values())),
)
def test_a_resumed_run_equals_the_uninterrupted_one_to_the_last_digit(options, train, tmp_path):
    assert train("whole", **options).state == "done"
    for stop_at in (2, 5):
        status = train("cut", stop_at=stop_at, **options)
        assert (status.state, status.step) == ("paused", stop_at)
    assert train("cut", **options).state == "done"
    whole, cut = lines(tmp_path / "whole"), lines(tmp_path / "cut")
    assert len(whole) >= 4
    assert cut == whole
    first, second = (load_file(tmp_path / f / job.EXPORT / "model.safetensors") for f in ("whole", "cut"))
    assert all((first[name] == second[name]).all() for name in first)


def test_the_loss_falls_and_the_end_is_validated(train, tmp_path):
    train("a", steps=40, valid_every=20, start="random")
    found = lines(tmp_path / "a")
    losses = [x["loss"] for x in found if "loss" in x]
    assert losses[-1] < losses[0] - 0.5
    valid = [x for x in found if "valid_bits_per_character" in x]
    assert [x["step"] for x in valid] == [20, 40]
    assert valid[1]["valid_bits_per_character"]["mean"] < valid[0]["valid_bits_per_character"]["mean"]


@pytest.mark.parametrize("options", [{}, {"frequent_tokens": 60}])
def test_accumulation_changes_no_more_than_the_last_digits(options, train, tmp_path):
    train("one", **options)
    train("four", micro_batch=2, **options)
    for a, b in zip(lines(tmp_path / "one"), lines(tmp_path / "four"), strict=True):
        if "loss" in a:
            assert abs(a["loss"] - b["loss"]) < 1e-4


def test_only_the_last_two_checkpoints_are_kept(train, tmp_path):
    train("a", checkpoint_steps=2)
    names = sorted(p.name for p in (tmp_path / "a" / job.CHECKPOINTS).iterdir())
    assert names == ["latest", "step-00000004", "step-00000006"]
    assert (tmp_path / "a" / job.CHECKPOINTS / "latest").read_text() == "step-00000006"


@pytest.mark.parametrize("damage", ["cut", "temporary"])
def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(damage, train, tmp_path, caplog):
    train("whole", checkpoint_steps=2)
    train("a", stop_at=6, checkpoint_steps=3)
    newest = tmp_path / "a" / job.CHECKPOINTS / "step-00000006"
    if damage == "cut":
        weights = newest / "rank-00000.safetensors"
        weights.write_bytes(weights.read_bytes()[:-7])
    else:
        newest.rename(newest.parent / ".tmp-step-00000006")
    assert train("a").state == "done"
    assert lines(tmp_path / "a") == lines(tmp_path / "whole")
    assert ("is damaged" in caplog.text) == (damage == "cut")


def test_only_damaged_checkpoints_are_an_error(train, tmp_path):
    train("a", stop_at=3)
    folder = tmp_path / "a" / job.CHECKPOINTS
    (folder / "step-00000003" / "index.json").write_text("{}")
    with pytest.raises(DataError, match="delete that folder"):
        checkpoint.newest(folder)


@pytest.mark.parametrize(
    ("options", "what"),
    [({"seed": 3}, "data plan"), ({"adam_learning_rate": 0.5}, "options"), ({"layers": 1}, "shape")],
)
def test_a_checkpoint_of_another_training_is_refused_by_name(options, what, train, tmp_path):
    train("a", stop_at=3)
    with pytest.raises(DataError, match=what):
        train("a", **options)


def test_a_finished_run_leaves_a_whole_export(train, tmp_path):
    train("a")
    export = tmp_path / "a" / job.EXPORT
    result = json.loads((export / job.RESULT).read_text())
    assert result["steps"] == 8 and result["parameters"] > 0
    assert set(result["files"]) == {p.name for p in export.iterdir()} - {job.RESULT}
    shutil.rmtree(export)


def test_a_rank_killed_after_its_export_and_started_again_keeps_it(train, tmp_path):
    train("run")
    export = tmp_path / "run" / job.EXPORT
    before = {path.name: path.read_bytes() for path in export.iterdir()}
    assert train("run").state == "done"
    assert {path.name: path.read_bytes() for path in export.iterdir()} == before


def test_a_run_killed_between_its_last_validation_and_its_export_does_not_validate_again(train, tmp_path):
    options = {"valid_every": 3, "steps": 9, "start": "random"}
    train("a", **options)
    whole = lines(tmp_path / "a")
    names = [p.name for p in (tmp_path / "a" / job.CHECKPOINTS).glob("step-*")]
    assert "step-00000009" in names, "the last validation is the best: a checkpoint of the last step is there"
    shutil.rmtree(tmp_path / "a" / job.EXPORT)
    assert train("a", **options).state == "done"
    assert lines(tmp_path / "a") == whole
