"""What the supervisor shows on /metrics of the workers' metrics.jsonl."""

import dataclasses
import json
import os
import re
import time
from pathlib import Path

import pytest

from yanmo.stage.exporter import Telemetry
from yanmo.train import job
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import (
    STARTS,
    TRAINING,
    RankFigures,
    Silence,
    doing_path,
    figures_path,
    heartbeat_path,
    read_figures,
)
from yanmo.train.metrics.declared import DOINGS, METRICS
from yanmo.train.metrics.gauges import MetricsGauges, _in_few_words

ROOT = Path(__file__).parents[4]
OPTIONS = TrainConfig(steps=100)


def add(path, *lines: dict) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_lines_are_shown_as_they_come_whole(tmp_path):
    telemetry, path = Telemetry("train", METRICS), tmp_path / job.METRICS
    gauges = MetricsGauges(telemetry, tmp_path)
    gauges.starting(OPTIONS)
    gauges.show()
    add(path, {"step": 10, "loss": 4.5, "mfu": 0.4, "phase_seconds": {"data": 0.25}})
    with path.open("a") as file:
        file.write('{"step": 20, "lo')
    gauges.show()
    text = telemetry.text()
    assert "yanmo_train_loss 4.5" in text and 'yanmo_train_interval_seconds{phase="data"} 0.25' in text
    with path.open("a") as file:
        file.write('ss": null, "tokens_per_second": 100.0}\n')
    gauges.show()
    text = telemetry.text()
    assert "yanmo_train_step 20" in text
    assert "yanmo_train_tokens_per_second 100" in text


def test_what_the_last_interval_does_not_say_is_not_shown_as_it_was_before(tmp_path):
    telemetry, path = Telemetry("train", METRICS), tmp_path / job.METRICS
    gauges = MetricsGauges(telemetry, tmp_path)
    gauges.starting(OPTIONS)
    first = {"step": 10, "loss": 4.5, "grad_norm": 2.0, "phase_seconds": {"forward": 1.0, "validation": 9.0}}
    add(path, first)
    gauges.show()
    assert telemetry.value("interval_seconds", phase="validation") == 9.0
    add(path, {"step": 20, "loss": None, "grad_norm": None, "phase_seconds": {"forward": 2.0}})
    gauges.show()
    assert telemetry.value("loss") is None and telemetry.value("grad_norm") is None, "none of it was finite"
    assert telemetry.value("interval_seconds", phase="validation") is None
    assert telemetry.value("interval_seconds", phase="forward") == 2.0


def test_what_an_earlier_process_counted_is_not_counted_again(tmp_path):
    path = tmp_path / job.METRICS
    skipped = {"step": 11, "event": "skipped", "first_sample": 80, "what": "loss"}
    add(path, {"step": 10, "tokens": 100, "seconds": 1.0}, skipped, {"step": 4, "event": "rewind"})
    telemetry = Telemetry("train", METRICS)
    gauges = MetricsGauges(telemetry, tmp_path)
    gauges.starting(OPTIONS)
    add(path, {"step": 20, "tokens": 150, "seconds": 2.0}, {**skipped, "step": 22, "first_sample": 96})
    gauges.show()
    assert telemetry.value("tokens") == 50
    assert telemetry.value("skipped_steps") == 1 and telemetry.value("rewinds") == 0


@pytest.mark.parametrize("line", [{"step": 1, "loss": "x"}, {"step": 1, "phase_seconds": 3}])
def test_a_damaged_line_ends_no_training_and_is_said_once(tmp_path, caplog, line):
    telemetry, path = Telemetry("train", METRICS), tmp_path / job.METRICS
    gauges = MetricsGauges(telemetry, tmp_path)
    gauges.starting(OPTIONS)
    for _ in range(2):
        add(path, line)
        gauges.show()
    assert len([one for one in caplog.messages if "cannot be shown" in one]) == 1
    add(path, {"step": 7, "loss": 2.0})
    gauges.show()
    assert telemetry.value("step") == 7


def test_the_monitor_and_events_are_shown(tmp_path):
    telemetry, path = Telemetry("train", METRICS), tmp_path / job.METRICS
    gauges = MetricsGauges(telemetry, tmp_path)
    gauges.starting(OPTIONS)
    figures = {
        "update_ratio": {"0": 0.01, "head": None},
        "effective_rank": {"0": 20.5},
        "output_entropy": 0.6,
    }
    skipped = {"step": 11, "event": "skipped", "first_sample": 80, "samples": 8}
    add(path, {"step": 10, "monitor": figures}, skipped, {**skipped, "step": 12})
    gauges.show()
    text = telemetry.text()
    assert 'yanmo_train_update_to_weight_ratio{layer="0"} 0.01' in text
    assert 'layer="head"' not in text
    assert 'yanmo_train_effective_rank{layer="0"} 20.5' in text
    assert "yanmo_train_output_entropy_ratio 0.6" in text and "yanmo_train_skipped_steps_total 2" in text


def test_events_are_counted_once_though_a_rewind_writes_the_lines_again(tmp_path):
    telemetry, path = Telemetry("train", METRICS), tmp_path / job.METRICS
    gauges = MetricsGauges(telemetry, tmp_path)
    skipped = {"step": 3, "event": "skipped", "first_sample": 16, "samples": 8, "what": "loss"}
    rewind = {"step": 4, "event": "rewind", "from_step": 9, "first_sample": 32}
    add(path, skipped, {"step": 5, "tokens": 50}, {**skipped, "step": 7, "first_sample": 48})
    gauges.show()
    path.unlink()
    add(path, skipped, {"step": 4, "tokens": 40}, rewind, {"step": 5, "tokens": 52, "loss": 3.0})
    gauges.show()
    names = ("skipped_steps", "rewinds", "tokens", "loss")
    assert [telemetry.value(name) for name in names] == [2, 1, 52, 3.0]


def beat(folder, rank: int, figures: RankFigures | None, doing: str) -> None:
    path = heartbeat_path(folder, rank)
    path.parent.mkdir(exist_ok=True)
    path.write_text("1")
    doing_path(path).write_text(doing)
    if figures:
        figures.write(figures_path(path))


def test_every_rank_shows_its_counters_and_restarts_are_counted(tmp_path):
    telemetry = Telemetry("train", METRICS)
    gauges = MetricsGauges(telemetry, tmp_path)
    for _ in (1, 2):
        gauges.starting(dataclasses.replace(OPTIONS, ranks=2))
        job.forget_earlier_start(tmp_path)
        gauges.show()  # before a rank has begun
        for count in (1, 2):
            for rank in (0, 1):
                figures = RankFigures(memory_bytes=7)
                for step in range(count):
                    figures.ended(step + 1, 2.0 + rank, 0.5)
                beat(tmp_path, rank, figures, "training step 3\n")
            gauges.show()
        assert telemetry.value("step_seconds", rank="1") == 2 * 3.0
        assert telemetry.value("data_wait_seconds", rank="0") == 2 * 0.5
        assert telemetry.value("ranks_doing", doing="training") == 2
        gauges.ended()
        assert telemetry.value("memory_bytes", rank="0") is None
        assert telemetry.value("last_step_age_seconds") is None, "an age that stands still says nothing"
        gauges.out_of_memory()
    assert telemetry.value("restarts", reason="smaller micro batch") == 2
    assert telemetry.value("out_of_memory") == 2


def test_what_a_rank_does_is_one_of_a_few_words(tmp_path):
    folder = ROOT / "components/yanmo/train"
    said = {TRAINING + " 7"} | STARTS
    for path in folder.rglob("*.py"):
        said |= set(re.findall(r'\bbeat\("([^"]+)"\)', path.read_text(encoding="utf-8")))
    assert len(said) > 8
    assert {_in_few_words(doing) for doing in said} == set(DOINGS)


def test_the_newest_checkpoint_is_shown_with_its_age(tmp_path):
    telemetry = Telemetry("train", METRICS)
    gauges = MetricsGauges(telemetry, tmp_path)
    gauges.starting(OPTIONS)
    gauges.show()
    assert telemetry.value("checkpoint_age_seconds") >= 0 and telemetry.value("checkpoint_step") is None
    for step in (90, 100):
        manifest = tmp_path / job.CHECKPOINTS / f"step-{step:08d}" / "manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.touch()
    os.utime(manifest, (time.time() - 500,) * 2)
    gauges.show()
    assert telemetry.value("checkpoint_step") == 100
    assert telemetry.value("checkpoint_age_seconds") >= 500
    gauges.ended()  # its twins may train for hours: no checkpoint of it will follow
    assert telemetry.value("checkpoint_age_seconds") is None and telemetry.value("checkpoint_step") == 100


@pytest.mark.parametrize("text", ["", "[]", '{"step": null}', '{"step": "x"}', "\u0000"])
def test_damaged_figures_of_a_rank_end_nothing(tmp_path, text):
    telemetry = Telemetry("train", METRICS)
    gauges = MetricsGauges(telemetry, tmp_path)
    gauges.starting(OPTIONS)
    beat(tmp_path, 0, None, "loading a checkpoint")
    figures_path(heartbeat_path(tmp_path, 0)).write_text(text)
    gauges.show()
    assert telemetry.value("ranks_doing", doing="loading") == 1
    assert telemetry.value("step_seconds", rank="0") is None


@pytest.mark.parametrize(("seconds", "said"), [(5400.0, 5400.0), (0.0, None)])
def test_how_often_a_checkpoint_is_due_is_shown_where_time_says_it(tmp_path, seconds, said):
    telemetry = Telemetry("train", METRICS)
    MetricsGauges(telemetry, tmp_path).starting(dataclasses.replace(OPTIONS, checkpoint_seconds=seconds))
    assert telemetry.value("checkpoint_interval_seconds") == said


def test_a_rank_that_has_ended_nothing_counts_nothing(tmp_path):
    RankFigures().write(tmp_path / "figures")
    figures = read_figures(tmp_path / "figures")
    assert figures is not None and set(vars(figures).values()) == {0}


def test_while_no_step_ends_rates_say_0_ages_grow_and_all_else_stays(tmp_path):
    telemetry, path, now = Telemetry("train", METRICS), tmp_path / job.METRICS, [0.0]
    gauges = MetricsGauges(telemetry, tmp_path)
    gauges.starting(OPTIONS)
    gauges._moves, gauges._beats = Silence(lambda: now[0]), {0: Silence(lambda: now[0])}
    add(path, {"step": 10, "loss": 4.5, "tokens_per_second": 900.0, "mfu": 0.4})
    beat(tmp_path, 0, RankFigures(step=10, steps=10), "training step 11")
    gauges.show()
    assert telemetry.value("tokens_per_second") == 900.0
    for now[0] in (4.0, 8.0, 12.0):
        gauges.show()
    assert (telemetry.value("tokens_per_second"), telemetry.value("mfu")) == (0.0, 0.0)
    ages = telemetry.value("last_step_age_seconds"), telemetry.value("heartbeat_age_seconds", rank="0")
    assert ages == (12.0, 12.0) and telemetry.value("loss") == 4.5
    add(path, {"step": 11, "tokens_per_second": 800.0})
    beat(tmp_path, 0, RankFigures(step=11, steps=11), "training step 12")
    gauges.show()
    assert telemetry.value("tokens_per_second") == 800.0 and telemetry.value("last_step_age_seconds") == 0.0
