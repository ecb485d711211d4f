"""From `--set` and `--grid` to the settings that are trained; hostile values end with 64 at once."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common.errors import UsageError
from yanmo_pipelines.sweep.command import main
from yanmo_pipelines.sweep.options import MOST_RUNS
from yanmo_pipelines.sweep.plan import make_plan
from yanmo_pipelines.sweep.settings import CHAIN, Name, expanded, read_grid, read_settings

BASE = read_settings(["curate.sources=text.jsonl"])
_NAMES = [Name("train", "layers"), Name("train", "adam_learning_rate"), Name("tokenize", "vocab_size")]
_WORDS = st.text("abc01.,-诗 ", min_size=1, max_size=6).filter(lambda text: text.strip(" ,") != "")


@given(
    st.dictionaries(
        st.sampled_from(_NAMES), st.lists(st.integers(1, 99).map(str), min_size=1, max_size=5, unique=True)
    ),
    st.integers(1, 5),
)
def test_a_grid_is_every_combination_once(grid: dict[Name, list[str]], seeds: int) -> None:
    found = expanded(grid, seeds)
    assert [tuple(one.values()) for one in found] == list(itertools.product(*grid.values()))
    assert all(list(one) == list(grid) for one in found)


@given(st.lists(st.lists(st.just("1"), min_size=40, max_size=60), min_size=3, max_size=3))
def test_a_grid_that_is_too_large_is_refused_before_it_is_expanded(values: list[list[str]]) -> None:
    with pytest.raises(UsageError, match=f"trainings, at most {MOST_RUNS}"):
        expanded(dict(zip(_NAMES, values, strict=True)), 1000)


@given(st.lists(_WORDS, min_size=2, max_size=5, unique=True))
def test_values_with_commas_and_blanks_are_given_as_a_list(values: list[str]) -> None:
    quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    (found,) = read_grid([f"balance.quotas=[{quoted}]"]).values()
    assert found == tuple(values)


def test_a_name_is_that_of_the_stage_or_that_of_the_run_form() -> None:
    assert read_settings(["train.adam-learning-rate=1"]) == read_settings(["train.adam_learning_rate=1"])
    assert read_settings(["model_vocabulary=4096"]) == {Name("tokenize", "vocab_size"): "4096"}


def test_seeds_follow_the_one_that_is_set_and_every_setting_gets_them_all() -> None:
    grid = read_grid(["train.adam_learning_rate=1e-2,2e-2,3e-2", "train.layers=1,2"])
    plan = make_plan({**BASE, **read_settings(["train.seed=7"])}, grid, 4, ())
    assert plan.seeds == [7, 8, 9, 10] and len(plan.runs) == 24
    assert [run.setting for run in plan.runs[:6]] == list(range(6)), "every setting with one seed first"
    assert {run.configs["train"].seed for run in plan.runs} == {7, 8, 9, 10}
    assert [plan.times(stage) for stage in CHAIN] == [1, 1, 1, 24, 24]


def test_what_settings_share_is_made_once() -> None:
    grid = read_grid(["tokenize.vocab_size=4096,8192", "train.adam_learning_rate=1e-2,2e-2"])
    assert [make_plan(BASE, grid, 3, ()).times(stage) for stage in CHAIN] == [1, 1, 2, 12, 12]
    grid = read_grid(["curate.max_filter_share=0.1,0.2", "train.adam_learning_rate=1e-2,2e-2"])
    assert [make_plan(BASE, grid, 1, ()).times(stage) for stage in CHAIN] == [2, 2, 2, 4, 4]


REFUSED = {
    "--grid train.adam_learning_rate=1e-3,1e-2,-1": (
        "train.adam_learning_rate=-1: train:",
        "--adam-learning-rate",
    ),
    "--grid train.heads=1,2,3,4,5,6,7,0": ("train.heads=0: train:", "--heads"),
    "--grid train.adam_lerning_rate=1,2": ("did you mean train.adam_learning_rate?",),
    "--grid train.adam_learning_rate=0.1": ("expected two values or more",),
    "--grid train.adam_learning_rate=0.1,0.1": ("0.1 is given twice",),
    "--grid train.adam_learning_rate=0.1,1e-1": ("are the same training",),
    "--grid train.adam_learning_rate=0.1,": ("a value is empty",),
    "--grid train.adam_learning_rate=[0.1": ("expected a list",),
    "--grid train.adam_learning_rate=[[0.1],0.2]": ("expected a list",),
    "--grid train.adam_learning_rate": ("expected NAME=VALUE",),
    "--grid train.log_every=1,2": ("are the same training", "does not change what is made"),
    "--grid train.seed=1,2": ("--seeds N trains every setting",),
    "--grid evaluate.stride=1,2": ("cannot be compared",),
    "--grid train.store=a,b": ("the sweep sets it itself",),
    "--grid train.token_cache=a,b": ("the sweep sets it itself",),
    "--grid promote.min_gain=0,1": ("expected STAGE.OPTION",),
    "--grid train.steps=1,2 --set train.steps=3": ("given by --set and by --grid",),
    "--grid train.steps=1,2 train.steps=3,4": ("given twice",),
    "--seeds 0": ("--seeds 0",),
    "--seeds 100 --grid train.steps=1,2,3,4,5,6,7,8,9,10,11": ("1100 trainings, at most 1000",),
    "--set train.seed=999999999999999 --seeds 3": ("--seed 1000000000000001",),
    "--set train.ranks=5": ("train: --batch-rows",),
    "--set train.layers=1e9999": ("--layers",),
    "--set curate.sources=": ("curate: --sources is empty",),
}


@pytest.mark.parametrize("command", REFUSED)
def test_a_wrong_value_anywhere_is_refused_before_the_first_training(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [f"--store={tmp_path / 'store'}", *command.split(" ")]
    if "curate.sources" not in command:
        argv += ["--set", "curate.sources=text.jsonl"]
    assert main(argv) == 64
    said = capsys.readouterr().err
    assert all(words in said for words in REFUSED[command]), said
    assert "Traceback" not in said and not (tmp_path / "store").exists()


def test_a_dry_run_says_what_would_be_done_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [f"--store={tmp_path / 'store'}", "--set=curate.sources=text.jsonl", "--seeds=3", "--dry-run"]
    assert main([*argv, "--grid=train.adam_learning_rate=0.01,0.02"]) == 0
    said = capsys.readouterr().out
    assert "2 settings x 3 seeds (0, 1, 2) = 6 trainings" in said
    assert "curate 1, balance 1, tokenize 1, train 6, evaluate 6" in said
    assert "models: 103.9 MB in all" in said and "are free" in said
    assert not (tmp_path / "store").exists()
