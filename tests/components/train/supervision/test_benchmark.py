"""Which settings --benchmark tries."""

from types import SimpleNamespace

import pytest

from yanmo.common.errors import EnvironmentFault
from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig
from yanmo.train.supervision import benchmark


@pytest.fixture
def measured(monkeypatch):
    """What `best_settings` measures: measured(a compiler is there) -> (result, options that were tried).

    Its clock is not a training: compiled layers are 1.5 times as fast, half of the rows twice; with speed=0
    nothing runs.
    """

    def run(compiler: bool, *, cores: int = 1, speed: float = 1000.0, **options):
        tried = []
        asked = TrainConfig(**{"batch_rows": 4, "ranks": 1, "device": "cpu", **options})

        def clocked(run, options: TrainConfig) -> float:
            tried.append(options)
            faster = 1.5 if options.compile else 1.0
            is_half = options.micro_batch * options.ranks * 2 == asked.batch_rows
            return speed * faster * (2.0 if is_half else 1.0)

        monkeypatch.setattr(benchmark, "compile_problem", lambda device: "" if compiler else "no compiler")
        monkeypatch.setattr(benchmark, "usable_cpus", lambda: cores)
        return benchmark.best_settings(SimpleNamespace(options=asked), clocked), tried

    return run


def test_ranks_and_threads_fill_a_machine_without_gpu(measured):
    _, tried = measured(True, cores=8, batch_rows=24)
    assert [(one.ranks, one.threads, one.micro_batch) for one in tried[:3]] == [
        (1, 8, 24),
        (4, 2, 6),
        (8, 1, 3),
    ]
    assert len(tried) <= benchmark.MOST_SETTINGS


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_gpu_machine_keeps_its_ranks(device, measured):
    """By what was settled: under WSL and with AMD's driver there is no /dev/nvidia0."""
    ranks = {"cuda": 2, "mps": 1}[device]
    shape = {"batch_rows": 16 * ranks, "ranks": ranks, "threads": 4, "backend": "torch"}
    best, tried = measured(True, cores=64, device=device, **shape)
    assert {(one.ranks, one.threads) for one in tried} == {(ranks, 4)}
    assert [one.micro_batch for one in tried[:3]] == [16, 8, 4] and best["micro_batch"] == 8
    assert len(tried) <= benchmark.MOST_SETTINGS


def test_ranks_that_do_not_divide_the_batch_are_left_out(measured):
    _, tried = measured(False, cores=2, batch_rows=3)
    assert {one.ranks for one in tried} == {1} and {one.micro_batch for one in tried} == {3}


def test_compiling_is_tried_where_a_compiler_is(measured):
    assert measured(True)[0]["compile"] is True
    best, tried = measured(False)
    assert "compile" not in best and not any(options.compile for options in tried)


def test_what_is_printed_is_a_table_and_the_fastest_as_an_options_file(measured, capsys, tmp_path):
    _, tried = measured(True)
    text = capsys.readouterr().out
    table = [line for line in text.splitlines() if line.startswith("#")]
    assert len(table) == 1 + len(tried) and table[1].startswith("# 3000 ")
    path = tmp_path / "best.yaml"
    path.write_text(text, encoding="utf-8")
    best = load(TrainConfig, [f"--config={path}", "--batch-rows=4"], "yanmo train")
    assert best.micro_batch == 2 and best.compile


def test_the_fastest_is_said_as_flags(measured):
    said, _, speed = benchmark.as_flags(measured(True)[0]).partition(" (")
    best = load(TrainConfig, [*said.split(), "--batch-rows=4"], "yanmo train")
    assert best.micro_batch == 2 and best.compile and speed == "3000 tokens/s)"


@pytest.mark.parametrize(
    "options",
    [
        {"early_stopping": 2, "valid_every": 4},
        {"schedule": "plateau", "valid_every": 4},
        {"night": "21:00-08:00", "night_power_watts": 400},
        {"device": "mps", "backend": "torch"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_contradict_a_setting_leave_out_that_setting_alone(options, measured):
    best, tried = measured(False, cores=2, **options)
    assert best["tokens_per_second"] == 2000 and len(tried) > 2


def test_a_benchmark_of_which_nothing_ran_prints_no_options(measured, capsys):
    with pytest.raises(EnvironmentFault, match="settings runs here"):
        measured(True, speed=0.0)
    assert not capsys.readouterr().out
