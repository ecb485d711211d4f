"""What a stage recorded of its cost, whatever became of the records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.formats.stage_cost import StageCost, finite, stage_cost, steps_cpu_seconds, training_lines
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output


def trained(store: FileStore, files: dict[str, str], **metadata: object) -> Output:
    def build(attempt: Attempt) -> Result:
        for name, text in files.items():
            attempt.write(name, text, role="record")
        return Result(counts={}, metadata=metadata)

    made = commit_once(store, Recipe(stage="train", revision=1, semantic={}, inputs={}), build)
    assert made is not None
    return made


def test_an_output_without_records_costs_what_its_manifest_says(store, caplog) -> None:
    assert stage_cost(trained(store, {}, seconds=7.0)) == StageCost(seconds=7.0, gpu_hours=0.0)
    assert not caplog.text


@pytest.mark.parametrize("body", ["no metric {", "yanmo_train_cpu_seconds x\n"])
def test_a_record_that_cannot_be_read_is_a_warning_and_no_cost(store, body: str, caplog) -> None:
    assert stage_cost(trained(store, {"metrics.prom": body, "metrics.jsonl": "{"})).seconds is None
    assert "no record of its cost" in caplog.text


def test_lines_without_a_step_or_cut_by_a_kill_are_left_out(store) -> None:
    lines = ['{"step": 1, "cpu_seconds": 2.5}', "[" * 100_000, '{"cpu_seconds": 9}', "1", '{"step": 2, "cpu']
    found = training_lines(trained(store, {"metrics.jsonl": "\n".join(lines)}))
    assert found == [{"step": 1, "cpu_seconds": 2.5}] and steps_cpu_seconds(found) == 2.5


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=3)
)
def test_any_value_is_a_finite_number_or_none(value: object) -> None:
    assert finite(10**400) is None
    number = finite(value)
    assert number is None or (number == float(value) and json.dumps(number, allow_nan=False))


PROM = "yanmo_train_duration_seconds 50.0\nyanmo_train_cpu_seconds 90.0\n"


def test_cost_is_read_from_what_a_training_recorded(store) -> None:
    joules = "yanmo_train_energy_joules"
    prom = f'{PROM}{joules}{{device="cpu"}} 1.8e+06\n{joules}{{device="gpu"}} 1.8e+06\n'
    found = stage_cost(trained(store, {"metrics.prom": prom}, seconds=7200.0, device="cuda", ranks=2))
    assert found == StageCost(seconds=7200.0, cpu_seconds=90.0, gpu_hours=4.0, kwh=1.0)


@pytest.mark.parametrize(("seconds", "expected"), [((400.0, 800.0), 800.0), ((1.0,), 90.0)])
def test_the_cpu_time_of_a_paused_training_is_that_of_all_its_steps(store, seconds, expected) -> None:
    lines = [f'{{"step": {10 * i}, "cpu_seconds": {spent}}}' for i, spent in enumerate(seconds, 1)]
    record = "\n".join([*lines, '{"step": 20, "valid_bits_per_character": 8.0}'])
    found = stage_cost(trained(store, {"metrics.prom": PROM, "metrics.jsonl": record}))
    assert found.cpu_seconds == expected


def test_gpu_hours_are_those_of_all_ranks(store) -> None:
    found = stage_cost(trained(store, {"metrics.prom": PROM}, device="cuda:0", ranks=8, seconds=3600.0))
    assert found.gpu_hours == 8.0
