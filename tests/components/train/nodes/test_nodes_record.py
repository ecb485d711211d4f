"""What node 0 writes for the others beside its lease."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

from yanmo.common.errors import EnvironmentFault
from yanmo.store.file_store import FileStore
from yanmo.train.config import TrainConfig
from yanmo.train.nodes.leader import tell_busy
from yanmo.train.nodes.record import End, NodesRecord, read_nodes_record


def test_another_version_on_a_node_is_a_fault_of_its_installation() -> None:
    mine = NodesRecord.of(TrainConfig(), "a")
    assert mine.refusal(1, mine) is None
    other = dataclasses.replace(mine, same={**mine.same, "torch": "0.1"})
    refusal = mine.refusal(1, other)
    assert isinstance(refusal, EnvironmentFault) and "node 1 has torch 0.1, and node 0" in str(refusal)
    assert "the same image or installation" in str(refusal)
    lacks = dataclasses.replace(mine, same={n: text for n, text in mine.same.items() if n != "torch"})
    assert "node 1 has torch none" in str(mine.refusal(1, lacks))


def test_nodes_are_told_that_another_training_is_at_work_as_a_pause(tmp_path: Path) -> None:
    opened = FileStore(tmp_path)
    run = SimpleNamespace(options=TrainConfig(), store=opened, key="e" * 64)
    tell_busy(run, "run run-1 trains")
    found = read_nodes_record(opened, run.key)
    assert found is not None and found.end == End(0, "paused: run run-1 trains", is_pause=True)
