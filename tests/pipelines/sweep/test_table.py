"""What the table of a sweep says besides its figures, which test_sweep.py reads from real runs."""

from __future__ import annotations

import pytest

from yanmo.common.errors import ExitCode
from yanmo_pipelines.compile import COMPILED
from yanmo_pipelines.parameters import check_stage_options, form_of, pipeline_parameters
from yanmo_pipelines.parameters import read_settings as read_parameters
from yanmo_pipelines.stages import LANGUAGE_MODEL
from yanmo_pipelines.sweep.measuring import Result
from yanmo_pipelines.sweep.plan import Plan, make_plan
from yanmo_pipelines.sweep.settings import read_grid, read_settings
from yanmo_pipelines.sweep.summary import Summary, gravest, summarize
from yanmo_pipelines.sweep.table import lines, run_settings


def plan_of(settings: list[str], grid: list[str], seeds: int = 1) -> Plan:
    return make_plan(read_settings(settings), read_grid(grid), seeds, ())


def test_the_pipeline_takes_the_winning_settings() -> None:
    """Those of its form under the form's names, all others as options of a stage, whatever is in them."""
    settings = [
        "curate.sources=my poems.txt;genre=诗",
        "curate.default_genre=白话 文",
        "tokenize.vocab_size=4096",
    ]
    settings += ["train.layers=2", "evaluate.samples=4"]
    grid = ['balance.quotas=["诗=50%, 词=50%", "诗=100%"]', "train.muon_learning_rate=1e-2,2e-2"]
    plan = plan_of(settings, grid, seeds=2)
    for number, setting in enumerate(plan.settings):
        (run, _) = [run for run in plan.runs if run.setting == number]
        words = run_settings(plan, Summary(number, [Result(run)], None, {}, None, None))
        assert words[::2] == ["--set"] * (len(words) // 2)
        path = COMPILED / "language_model.yaml"
        values = pipeline_parameters(path, read_parameters(words[1::2]))
        defaults = {name: field.get("defaultValue", "") for name, field in form_of(path).items()}
        check_stage_options(LANGUAGE_MODEL, {**defaults, **values})
        assert values["data_sources"] == "my poems.txt;genre=诗" and values["train_seed"] == "0"
        assert values["data_quotas"] in setting.values() and values["model_vocabulary"] == 4096
        assert "train.layers=2" in values["options"] and "evaluate" not in values["options"]


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ({"done": 0}, 0),
        ({"done": 0, "paused": 0}, 75),
        ({"failed": 64, "not run": 0}, 64),
        ({"done": 75, "failed": 65}, 65),
        ({"failed": 78, "stopped": 0}, 78),
    ],
)
def test_the_exit_code_is_the_gravest(states: dict[str, int], code: int) -> None:
    plan = plan_of([], [])
    results = [Result(plan.runs[0], state=state, code=each) for state, each in states.items()]
    assert gravest(results) == code
    assert gravest([*results, Result(plan.runs[0], state="failed", code=ExitCode.BUG)]) == 70


def test_a_sweep_without_a_measured_run_chooses_nothing() -> None:
    plan = plan_of([], ["train.layers=1,2"], seeds=2)
    results = [
        Result(run, state="failed", code=65, reason="train ended with 65: \x1b[31mno text")
        for run in plan.runs
    ]
    said = "\n".join(lines(plan, results, ["yanmo", "run"], "yanmo store gc"))
    assert "best" not in said.replace("worse than the best", "") and "yanmo run" not in said
    assert said.count("failed: train.layers=") == 4 and "\x1b" not in said
    assert [len(each.done) for each in summarize(plan, results)] == [0, 0]
