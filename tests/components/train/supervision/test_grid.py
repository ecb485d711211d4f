"""Which settings --benchmark tries."""

from types import SimpleNamespace

import pytest

from yanmo.common.errors import EnvironmentFault
from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig
from yanmo.train.supervision import grid


def test_ranks_and_threads_fill_a_machine_without_gpu():
    settings = list(grid.first_settings(TrainConfig(batch_rows=24, device="cpu"), 8))
    assert {(s["ranks"], s["threads"]) for s in settings} == {(1, 8), (4, 2), (8, 1)}
    assert [s["micro_batch"] for s in settings if s["ranks"] == 1] == [6, 12, 24]
    assert [s["micro_batch"] for s in settings if s["ranks"] == 8] == [3]
    for setting in settings:
        TrainConfig(batch_rows=24, **setting)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_gpu_machine_keeps_its_ranks(device):
    """By what was settled: under WSL and with AMD's driver there is no /dev/nvidia0."""
    ranks = {"cuda": 2, "mps": 1}[device]
    options = TrainConfig(batch_rows=16 * ranks, ranks=ranks, threads=4, device=device, backend="torch")
    settings = list(grid.first_settings(options, 64))
    assert {(s["ranks"], s["threads"]) for s in settings} == {(ranks, 4)}
    assert [s["micro_batch"] for s in settings] == [4, 8, 16]


def test_a_setting_that_one_trial_excluded_is_not_reported_as_slower_beyond_chance(measured, capsys):
    measured(True)
    assert "slower beyond chance; of" in capsys.readouterr().out


def test_ranks_that_do_not_divide_the_batch_are_left_out():
    settings = list(grid.first_settings(TrainConfig(batch_rows=3, ranks=1, device="cpu"), 2))
    assert {s["ranks"] for s in settings} == {1} and [s["micro_batch"] for s in settings] == [3]


@pytest.fixture
def measured(monkeypatch):
    """What `best_settings` measures: measured(a compiler is there) -> (result, settings that were tried).

    Its clock is not a training: compiled layers are 1.5 times as fast, bf16 twice; with speed=0 nothing runs.
    """

    def run(compiler: bool, *, cores: int = 1, speed: float = 1000.0, **options):
        tried = []

        def clocked(run, options: TrainConfig) -> float:
            tried.append(options)
            faster = 1.5 if options.compile else 1.0
            return speed * faster * (2.0 if options.precision == "bf16" else 1.0)

        monkeypatch.setattr(grid, "compile_problem", lambda device: "" if compiler else "no compiler")
        monkeypatch.setattr(grid, "usable_cpus", lambda: cores)
        asked = TrainConfig(batch_rows=4, ranks=1, **{"device": "cpu", **options})
        return grid.best_settings(SimpleNamespace(options=asked), clocked), tried

    return run


def test_compiling_is_tried_where_a_compiler_is(measured):
    assert measured(True)[0]["compile"] is True
    best, tried = measured(False)
    assert "compile" not in best and not any(options.compile for options in tried)


def test_the_other_precision_is_reported_and_not_put_into_the_options(measured, capsys, tmp_path):
    measured(True)
    text = capsys.readouterr().out
    assert "# --precision bf16: 3000 tokens/s, 2.00 times fp32; it makes another model" in text
    path = tmp_path / "best.yaml"
    path.write_text(text, encoding="utf-8")
    best = load(TrainConfig, [f"--config={path}", "--batch-rows=4"], "yanmo train")
    assert best.precision == "fp32" and best.compile


@pytest.mark.parametrize(
    "options",
    [
        {"early_stopping": 2, "valid_every": 4},
        {"schedule": "plateau", "valid_every": 4},
        {"night": "21:00-08:00", "night_micro_batch": 4},
        {"deepspeed_config": "ds.json"},
        {"device": "mps", "backend": "torch"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_contradict_a_setting_leave_out_that_setting_alone(options, measured):
    best, tried = measured(False, cores=2, **options)
    assert best["tokens_per_second"] == 1000 and len(tried) > 2


def test_a_benchmark_of_which_nothing_ran_prints_no_options(measured, capsys):
    with pytest.raises(EnvironmentFault, match="settings runs here"):
        measured(True, speed=0.0)
    assert not capsys.readouterr().out
