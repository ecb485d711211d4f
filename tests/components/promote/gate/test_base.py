"""A tuned model beside the one that it was tuned from."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_commit import commit

from yanmo.promote.gate.base import compare, genres_of_chats
from yanmo.promote.gate.evaluation import open_evaluation

CHATS = ("赋",)
"""The genre that holds chats here."""


def evaluation_set(stage):
    rows = [
        {"genre": g, "turns": [{"role": "user", "begin": 0, "end": 1}] if g in CHATS else None}
        for g in stage.numbers
    ]
    table = pa.Table.from_pylist(rows)
    return commit(stage.store, "evaluation_set", {"test.parquet": lambda path: pq.write_table(table, path)})


def tuned(stage, *, answers=-1.0, texts=0.05, base_bits=8.0):
    """Evaluations of a base and of a model that was tuned from it; what the tuning changed, in bits."""
    documents, base = evaluation_set(stage), stage.model(1)
    model = stage.model(2, base=base, text=stage.text("chats"))
    before = stage.evaluate(base, base_bits, evaluation_set=documents, pointer="base_evaluation")
    shift = {genre: answers if genre in CHATS else texts for genre in stage.numbers}
    return before, stage.evaluate(model, base_bits, shift=shift, evaluation_set=documents)


def beside_base(stage):
    return json.loads(stage.written("report.json"))["base"]


@pytest.mark.parametrize(("texts", "outcome"), [(0.05, "promoted"), (0.15, "not promoted")])
def test_a_model_that_forgot_more_than_the_limit_is_not_promoted(stage, texts, outcome):
    tuned(stage, texts=texts)
    assert stage.promote("--limits=forgotten_bits<=0.1") == 0
    assert stage.verdict()["outcome"] == outcome
    found = beside_base(stage)
    assert found["forgotten"]["bits"] == pytest.approx(texts, abs=1e-4)
    assert found["answers"]["bits"] == pytest.approx(-1.0, abs=1e-4)
    low, high = found["forgotten"]["interval"]
    assert low <= found["forgotten"]["bits"] <= high


def test_what_was_forgotten_is_not_known_without_the_base_and_then_not_within_its_limit(stage):
    stage.evaluate(stage.model(3))
    assert stage.promote("--limits=forgotten_bits<=0.1") == 0
    assert stage.verdict()["outcome"] == "not promoted"
    assert beside_base(stage) is None


def test_the_evaluation_of_another_model_is_not_the_bases_and_changes_no_key(stage, caplog):
    stage.evaluate(stage.model(3))
    assert stage.promote() == 0
    before = stage.pointer("promote").key
    stranger = stage.evaluate(stage.model(9), pointer="base_evaluation")
    assert stage.promote() == 0
    assert stage.pointer("promote").key == before
    assert stage.promote(f"--base=evaluate/{stranger.manifest.key}") == 0
    assert "is not of the model that the challenger was tuned from" in caplog.text
    assert stage.promote(f"--base=train/{stage.model(3).manifest.key}") == 65
    assert "expected an output of evaluate" in caplog.text


def test_a_base_measured_another_way_is_named_and_judges_nothing(stage, caplog):
    base = stage.model(1)
    stage.evaluate(base, split="valid", pointer="base_evaluation")
    stage.evaluate(stage.model(2, base=base, text=stage.text("chats")))
    assert stage.promote("--limits=") == 0
    assert "were not measured alike (split: test and valid)" in caplog.text
    assert beside_base(stage) is None


def test_genres_of_chats_are_those_of_the_evaluation_set(stage):
    _, after = tuned(stage)
    assert genres_of_chats(open_evaluation(after)) == {*CHATS}


SCORES = st.lists(
    st.tuples(*[st.floats(1, 100), *[st.floats(0, 1000)] * 2, st.integers(0, 5)]), min_size=1, max_size=12
)


@given(st.dictionaries(st.sampled_from("诗词文赋"), SCORES, min_size=1), st.sets(st.sampled_from("诗词文赋")))
def test_bits_before_and_after_differ_by_the_change_whatever_genres_there_are(rows, chats):
    scores = {genre: np.array(values, np.float64) for genre, values in rows.items()}
    found = compare(scores, frozenset(chats), 2000, 0)
    assert set(found["genres"]) == set(scores)
    assert (found["answers"] is None) == (not set(scores) & chats)
    assert (found["forgotten"] is None) == (not set(scores) - chats)
    for change in filter(None, [found["answers"], found["forgotten"], *found["genres"].values()]):
        assert change["bits"] == pytest.approx(change["tuned"] - change["base"], abs=2e-5)
        assert change["interval"] is None or change["interval"][0] <= change["interval"][1]
