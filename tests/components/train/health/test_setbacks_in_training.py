"""Poisoned data, rewinds and the ends of windows, in one process."""

from __future__ import annotations

import functools
import gzip
import json
import shutil

import pytest

from yanmo.common.errors import UsageError
from yanmo.train import job
from yanmo.train.checkpoints import checkpoint

pytestmark = pytest.mark.usefixtures("one_rank")
ROWS = 8


@pytest.fixture
def train(train):
    """`train` of conftest.py from weights at random."""
    return functools.partial(train, start="random")


@pytest.fixture
def poison(store, tiny, monkeypatch, faults):
    """Poison all samples of some steps: poison([4, 5])."""

    def steps(*numbers: int) -> None:
        samples = faults.samples_of(store, tiny)
        wanted = [(n - 1) * ROWS + i for n in numbers for i in range(ROWS)]
        faults.poison(faults.rows_of(samples, wanted), monkeypatch.setattr)

    return steps


def lines(place) -> list[dict]:
    return [json.loads(x) for x in (place / job.METRICS).read_text(encoding="utf-8").splitlines()]


def events(place, name: str) -> list[dict]:
    return [line for line in lines(place) if line.get("event") == name]


def losses(place) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in lines(place) if "loss" in line}


def test_a_poisoned_step_is_skipped_and_recorded_and_training_goes_on(train, poison, tmp_path, caplog):
    train("clean")
    poison(4)
    assert "skipped" not in caplog.text
    assert train("a").state == "done"
    assert "skipped 1 of the steps up to 4: loss or gradient not finite" in caplog.text
    assert events(tmp_path / "a", "skipped") == [
        {"step": 4, "event": "skipped", "first_sample": 3 * ROWS, "samples": ROWS, "what": "loss"}
    ]
    clean, poisoned = losses(tmp_path / "clean"), losses(tmp_path / "a")
    assert poisoned[4] is None
    assert [poisoned[n] for n in (1, 2, 3)] == [clean[n] for n in (1, 2, 3)]
    assert all(poisoned[n] is not None and poisoned[n] != clean[n] for n in (5, 6, 7, 8))
    result = json.loads((tmp_path / "a" / job.EXPORT / job.RESULT).read_text())
    assert result["updates"] == 7


def test_a_batch_without_a_target_moves_nothing_and_is_called_nothing(
    train, tmp_path, caplog, monkeypatch, faults
):
    faults.silence(3 * ROWS, monkeypatch.setattr)
    assert train("a", monitor="full", monitor_every=4).state == "done"
    assert "skipped" not in caplog.text and not events(tmp_path / "a", "skipped")
    found = losses(tmp_path / "a")
    assert found[4] is None and all(found[n] for n in (1, 2, 3, 5, 6, 7, 8))
    assert json.loads((tmp_path / "a" / job.EXPORT / job.RESULT).read_text())["updates"] == 7


def test_bad_steps_in_a_row_rewind_and_step_over_the_data(train, poison, tmp_path):
    poison(6, 7, 8)
    assert train("a", steps=14, checkpoint_steps=2).state == "done"
    (rewind,) = events(tmp_path / "a", "rewind")
    assert (rewind["from_step"], rewind["step"]) == (8, 4)
    assert (rewind["first_sample"], rewind["samples"]) == (4 * ROWS, 4 * ROWS)
    found = losses(tmp_path / "a")
    assert sorted(found) == list(range(1, 15)) and None not in found.values()


def test_a_kill_after_a_rewind_and_before_the_next_checkpoint_records_it_once(
    train, poison, tmp_path, monkeypatch
):
    from yanmo.train.metrics.metrics_log import MetricsLog

    poison(6, 7, 8)
    options = {"steps": 14, "checkpoint_steps": 2}
    train("whole", **options)
    line = MetricsLog.line

    def killed(self, step, *rest):
        if step == 5 and events(tmp_path / "cut", "rewind"):
            raise KeyboardInterrupt
        line(self, step, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(MetricsLog, "line", killed)
        train("cut", **options)
    assert train("cut", **options).state == "done"
    assert events(tmp_path / "cut", "rewind") == events(tmp_path / "whole", "rewind") != []


def test_a_run_that_rewinds_too_often_ends_as_diverged(train, poison):
    poison(*range(5, 20))
    with pytest.raises(UsageError, match=r"after 2 rewinds.*diverged"):
        train("a", steps=20, checkpoint_steps=2, rewinds=2)


def test_without_a_checkpoint_to_go_back_to_bad_steps_end_the_run(train, poison):
    poison(2, 3, 4)
    with pytest.raises(UsageError, match="from step 2 on; no checkpoint from before it"):
        train("a")


def test_a_spike_rewinds_too(train, tmp_path, monkeypatch):
    from yanmo.train.health import setbacks

    note = setbacks.Health.note
    seen = {"raised": 0}

    def high(self, step, loss, moved):
        # The losses that the watch sees: true ones, and a hill of 5 nats the first time that 40 is passed.
        raised = 40 <= step < 45 and seen["raised"] < 5
        seen["raised"] += raised
        return note(self, step, loss + 5 * raised, moved)

    monkeypatch.setattr(setbacks.Health, "note", high)
    assert train("a", steps=50, checkpoint_steps=10, log_every=1).state == "done"
    (rewind,) = events(tmp_path / "a", "rewind")
    assert (rewind["from_step"], rewind["step"]) == (44, 30) and "2 nats above" in rewind["reason"]


def test_a_model_that_never_moved_is_not_handed_over(train, poison):
    poison(1, 2)
    with pytest.raises(UsageError, match="no step whose gradient was finite"):
        train("a", steps=2, warmup_steps=0)


def test_a_profile_is_a_trace_that_opens(train, tmp_path):
    train("a", profile=2)
    with gzip.open(tmp_path / "a" / job.TRACE, "rt", encoding="utf-8") as file:
        names = {event.get("name", "") for event in json.load(file)["traceEvents"]}
    assert any("aten::mm" in name for name in names)
    assert train("b").state == "done" and not (tmp_path / "b" / job.TRACE).exists()


def test_a_time_window_that_is_over_saves_and_ends_after_the_step(train, tmp_path):
    train("whole")
    status = train("a", window={"ends_at": 1.0, "reason": "--night 21:00-07:45 is over"})
    assert (status.state, status.step) == ("paused", 1)
    assert (tmp_path / "a" / job.CHECKPOINTS / "latest").read_text() == checkpoint.name_of(1)
    halved = {"note": "out of memory with a micro batch of 8 rows on rank 0"}
    assert train("a", window=halved, micro_batch=4).state == "done"
    assert events(tmp_path / "a", "settings")[0]["micro_batch"] == 4
    for a, b in zip(losses(tmp_path / "a").values(), losses(tmp_path / "whole").values(), strict=True):
        assert abs(a - b) < 1e-4


def test_the_newest_checkpoints_and_the_best_are_kept(train, tmp_path):
    train("a", steps=12, checkpoint_steps=1, valid_every=5)
    root = tmp_path / "a" / job.CHECKPOINTS
    kept = {checkpoint.step_of(p) for p in root.glob("step-*")}
    best = checkpoint.step_of(checkpoint.read_pointer(root, checkpoint.BEST))
    means = {
        x["step"]: x["valid_bits_per_character"]["mean"]
        for x in lines(tmp_path / "a")
        if "valid_bits_per_character" in x
    }
    assert best == min(means, key=means.get)
    assert kept >= {10, 11, best} and len(kept) <= 4


def test_a_kill_between_the_best_checkpoint_and_its_pointer_loses_no_best_model(train, tmp_path, monkeypatch):
    options = {"steps": 12, "valid_every": 3, "early_stopping": 3, "early_min_delta": 0.2}
    train("whole", **options)
    point = checkpoint.set_pointer

    def killed(root, pointer, name):
        if pointer == checkpoint.BEST and name == checkpoint.name_of(6):
            raise KeyboardInterrupt
        point(root, pointer, name)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint, "set_pointer", killed)
        train("cut", **options)
    root = tmp_path / "cut" / job.CHECKPOINTS
    assert checkpoint.read_pointer(root, checkpoint.BEST).name == checkpoint.name_of(3)
    with monkeypatch.context() as patch:  # no later validation is better
        from yanmo.train.validate import Validation

        patch.setattr(Validation, "bits_per_character", lambda self, engine, beat: {"mean": 99.0})
        train("cut", **options)
    assert checkpoint.read_pointer(root, checkpoint.BEST).name == checkpoint.name_of(6)
    (event,) = events(tmp_path / "cut", "best")
    assert event["best_step"] == 6


def test_a_best_model_that_is_gone_is_not_missed_in_silence(train, tmp_path):
    options = {"steps": 8, "valid_every": 2, "early_stopping": 8}
    train("a", **options, window={"ends_at": None})
    root = tmp_path / "a" / job.CHECKPOINTS
    checkpoint.drop_after(root, 6)
    shutil.rmtree(tmp_path / "a" / job.EXPORT)
    index = root / checkpoint.name_of(6) / "index.json"
    state = json.loads(index.read_text())
    state["progress"] |= {"best_checkpoint": checkpoint.name_of(2), "best": 0.5}
    index.write_text(json.dumps(state))
    manifest = json.loads((index.parent / "manifest.json").read_text())
    manifest["files"] = [
        e if e["name"] != "index.json" else checkpoint._entry(index) for e in manifest["files"]
    ]
    (index.parent / "manifest.json").write_text(json.dumps(manifest))
    assert train("a", **options).state == "done"
    assert checkpoint.read_pointer(root, checkpoint.BEST).name == checkpoint.name_of(8)


def test_a_checkpoint_from_before_the_trouble_outlives_those_made_in_it(train, poison, tmp_path):
    poison(6, 7, 8, 9)
    assert train("a", steps=14, checkpoint_steps=1, nonfinite_steps=4).state == "done"
    (rewind,) = events(tmp_path / "a", "rewind")
    assert (rewind["from_step"], rewind["step"]) == (9, 5)
    kept = [checkpoint.step_of(p) for p in (tmp_path / "a" / job.CHECKPOINTS).glob("step-*")]
    assert sorted(kept) == [12, 13], "no more than two once it is over"


def test_a_best_model_that_is_damaged_does_not_lose_the_last_one(train, tmp_path, caplog, monkeypatch):
    from yanmo.train.loop import Loop

    options = {"steps": 6, "valid_every": 2, "early_stopping": 6}
    back = Loop._go_back_to_the_best

    def cut_short(self):
        root = tmp_path / "a" / job.CHECKPOINTS
        checkpoint.set_pointer(root, checkpoint.BEST, checkpoint.name_of(4))
        path = root / checkpoint.name_of(4) / "rank-00000.safetensors"
        path.write_bytes(path.read_bytes()[:100])
        back(self)

    monkeypatch.setattr(Loop, "_go_back_to_the_best", cut_short)
    status = train("a", **options)
    assert (status.state, status.step) == ("done", 6) and "is damaged" in caplog.text
    (event,) = events(tmp_path / "a", "best")
    assert "expected" in event["damaged"]
