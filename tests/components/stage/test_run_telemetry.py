"""What every stage shows on /metrics of its process."""

from __future__ import annotations

import pytest
import toy_stage
from toy_outputs import wait_until

from yanmo.stage.run_telemetry import telemetry_of


@pytest.mark.parametrize(("rank", "serves"), [("", True), ("0", True), ("1", False)])
def test_a_pod_serves_its_metrics_once(monkeypatch: pytest.MonkeyPatch, rank: str, serves: bool) -> None:
    monkeypatch.setenv("LOCAL_RANK", rank)
    with telemetry_of(toy_stage.STAGE, toy_stage.ToyOptions()) as telemetry:
        assert telemetry.is_served is serves and (telemetry.port > 0) is serves
        assert 'yanmo_stage_state{state="starting"} 1.0' in telemetry.text()
        wait_until(lambda: "yanmo_stage_disk_free_bytes" in telemetry.text(), "the disk is measured")
