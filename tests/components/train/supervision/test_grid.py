"""Which settings --benchmark tries."""

from yanmo.train.config import TrainConfig
from yanmo.train.supervision import grid


def test_ranks_and_threads_fill_a_machine_without_gpu(monkeypatch):
    monkeypatch.setattr(grid, "_has_gpu", lambda: False)
    settings = list(grid.first_settings(TrainConfig(batch_rows=24), 8))
    assert {(s["ranks"], s["threads"]) for s in settings} == {(1, 8), (4, 2), (8, 1)}
    assert [s["micro_batch"] for s in settings if s["ranks"] == 1] == [6, 12, 24]
    assert [s["micro_batch"] for s in settings if s["ranks"] == 8] == [3]
    for setting in settings:
        TrainConfig(batch_rows=24, **setting)


def test_a_gpu_machine_keeps_its_ranks(monkeypatch):
    monkeypatch.setattr(grid, "_has_gpu", lambda: True)
    settings = list(grid.first_settings(TrainConfig(batch_rows=32, ranks=2, threads=4), 64))
    assert {(s["ranks"], s["threads"]) for s in settings} == {(2, 4)}
    assert [s["micro_batch"] for s in settings] == [4, 8, 16]


def test_ranks_that_do_not_divide_the_batch_are_left_out(monkeypatch):
    monkeypatch.setattr(grid, "_has_gpu", lambda: False)
    settings = list(grid.first_settings(TrainConfig(batch_rows=3, ranks=1), 2))
    assert {s["ranks"] for s in settings} == {1} and [s["micro_batch"] for s in settings] == [3]
