"""What the supervisor shows on /metrics of the workers' metrics.jsonl."""

import json

from yanmo.stage.exporter import Telemetry
from yanmo.train import job
from yanmo.train.metrics.gauges import MetricsGauges


def add(path, *lines: dict) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_lines_are_shown_as_they_come_whole(tmp_path):
    telemetry, path = Telemetry("train", port=-1), tmp_path / job.METRICS
    gauges = MetricsGauges(telemetry, tmp_path)
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
    assert "yanmo_train_step 20" in text and "yanmo_train_loss 4.5" in text
    assert "yanmo_train_tokens_per_second 100" in text


def test_the_monitor_and_events_are_shown(tmp_path):
    telemetry, path = Telemetry("train", port=-1), tmp_path / job.METRICS
    gauges = MetricsGauges(telemetry, tmp_path)
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
    assert "yanmo_train_output_entropy_ratio 0.6" in text and "yanmo_train_skipped_steps 2" in text


def test_a_file_rewritten_after_a_rewind_is_read_from_its_beginning(tmp_path):
    telemetry, path = Telemetry("train", port=-1), tmp_path / job.METRICS
    gauges = MetricsGauges(telemetry, tmp_path)
    rewind = {"step": 4, "event": "rewind"}
    add(path, {"step": 4, "loss": 5.0}, rewind, *({"step": n, "loss": 4.0} for n in range(5, 9)))
    gauges.show()
    path.unlink()
    add(path, {"step": 4, "loss": 5.0}, rewind, {"step": 5, "loss": 3.0})
    gauges.show()
    assert "yanmo_train_loss 3" in telemetry.text() and "yanmo_train_rewinds 1" in telemetry.text()
