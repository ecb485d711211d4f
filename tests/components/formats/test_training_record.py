"""What a training recorded, whatever became of the record."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from yanmo.formats.training_record import finite, steps_cpu_seconds, training_lines
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
