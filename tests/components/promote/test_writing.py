"""What the part `writing` says reaches the gate and the page, and only that of the challenger does."""

import json

from tiny_store import commit

from yanmo.common.store.output import open_reference
from yanmo.promote.evaluation import open_evaluation, with_writing


def write(stage, evaluation, contamination, pointer="writing"):
    files = {
        "verse.json": json.dumps({"rules": []}),
        "memorization.json": json.dumps(
            {"nearest": {"诗/0000": {"title": "静夜思", "likeness": 0.5}}, "samples": {"loops": 0.9}}
        ),
        "contamination.json": json.dumps({"share": contamination, "genres": {}}),
    }
    return commit(
        stage.store, "writing", files, inputs={"evaluation": evaluation}, options={"c": contamination}
    )


def test_a_contaminated_test_split_makes_the_verdict_not_valid_even_without_champion(stage):
    write(stage, stage.evaluate(stage.model(1)), 0.02)
    assert stage.promote() == 0
    assert stage.verdict()["outcome"] == "not valid"
    assert stage.pointer("champion") is None


def test_a_clean_one_is_crowned_and_the_nearest_text_is_named(stage):
    write(stage, stage.evaluate(stage.model(1)), 0.0)
    assert stage.promote() == 0
    assert stage.verdict()["promote"]
    evaluation, writing = (
        open_reference(stage.store, stage.pointer(name)) for name in ("evaluate", "writing")
    )
    samples = with_writing(open_evaluation(evaluation), writing).samples["genres"]
    assert samples["诗"][0]["nearest"] == "静夜思 (0.50)" and samples["词"][0]["nearest"] is None


def test_a_loop_is_held_against_a_model_where_a_limit_says_so(stage):
    write(stage, stage.evaluate(stage.model(1)), 0.0)
    assert stage.promote("--limits", "loop_share<=0.5") == 0
    assert not stage.verdict()["promote"]


def test_figures_of_another_evaluation_are_not_used(stage, caplog):
    write(stage, stage.evaluate(stage.model(1)), 0.5)
    stage.evaluate(stage.model(2))
    assert stage.promote() == 0
    assert "is not used: contamination and writing are not judged" in caplog.text
    assert stage.verdict()["promote"]
