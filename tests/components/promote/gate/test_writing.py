"""What the part `writing` says reaches the gate and the page, and only that of the challenger does."""

import json

from tiny_store import commit

from yanmo.promote.gate.evaluation import open_evaluation, with_writing
from yanmo.store.output import open_reference

RULE = {"name": "rhyme", "title": "rhyme", "genre": "诗", "unit": "poems"}
SHARE = {"of": 10, "share": 0.4, "interval": [0.1, 0.7]}


def write(stage, evaluation, *, texts=None, rhyme=SHARE):
    """What evaluate would say of these samples, copies being looked for in `texts`."""
    rules = [{**RULE, "held_out": SHARE, "chance": SHARE, "generated": rhyme}]
    looked = {"documents": stage.text()} if texts is None else {"documents": texts[0]}
    files = {
        "verse.json": json.dumps({"rules": rules}),
        "memorization.json": json.dumps(
            {
                "window": 8,
                "generated": {"copied_8grams": 0.3},
                "held_out": {"copied_8grams": 0.1},
                "genres": {},
                "nearest": {"诗/0000": {"title": "静夜思", "likeness": 0.5}},
                "samples": {"loops": 0.9},
            }
        ),
    }
    return commit(
        stage.store,
        "writing",
        files,
        inputs={"evaluation": evaluation, **looked},
        pointer="writing",
    )


def test_a_clean_one_is_promoted_and_the_nearest_text_is_named(stage):
    write(stage, stage.evaluate(stage.model(1)))
    assert stage.promote() == 0
    assert stage.verdict()["promote"]
    evaluation, writing = (
        open_reference(stage.store, stage.pointer(name)) for name in ("evaluate", "writing")
    )
    samples = with_writing(open_evaluation(evaluation), writing).samples["genres"]
    assert samples["诗"][0]["nearest"] == {"title": "静夜思", "likeness": 0.5}
    assert samples["词"][0]["nearest"] is None


def test_a_loop_is_held_against_a_model_where_a_limit_says_so(stage):
    write(stage, stage.evaluate(stage.model(1)))
    assert stage.promote("--limits", "loop_share<=0.5") == 0
    assert not stage.verdict()["promote"]


def test_figures_of_another_evaluation_are_not_used(stage, caplog):
    write(stage, stage.evaluate(stage.model(1)))
    stage.evaluate(stage.model(2))
    assert stage.promote() == 0
    assert "is not used: writing is not judged" in caplog.text
    assert stage.verdict()["promote"]


def test_a_test_split_clean_of_another_text_is_not_clean(stage, caplog):
    """Copies were looked for in a text that the model was not trained on."""
    other = [stage.text("another")]
    write(stage, stage.evaluate(stage.model(1), contamination=0.0, searched=other), texts=other)
    assert stage.promote() == 0
    assert "does not cover the training text of train/" in caplog.text
    assert "was not looked in" in caplog.text
    assert stage.verdict()["sentence"]["en"].startswith("Not measured: whether the evaluated texts are in")
    assert stage.pointer("champion") is None
    report = json.loads(stage.written("report.json"))
    assert report["contamination"] is None and report["memorization"] is None
    assert report["verse"], "the form of verse does not depend on the text"
    accepted = ["--accept-unmeasured", "contamination"]
    assert stage.promote("--limits", "loop_share<=1", "--dry-run", *accepted) == 0
    assert "A limit is set on a metric that was not measured" in caplog.text


def test_what_was_found_in_a_part_of_the_text_counts_and_that_nothing_was_found_does_not(stage):
    """The text of the model that a model began from is a part of it."""
    old, new = stage.text("old"), stage.text("new")
    model = stage.model(2, text=new, base=stage.model(1, text=old))
    for share, outcome in ((0.0, "not promoted"), (0.02, "not valid")):
        stage.evaluate(model, contamination=share, searched=[new], again=share)
        assert stage.promote() == 0
        assert stage.verdict()["outcome"] == outcome and stage.pointer("champion") is None
    assert json.loads(stage.written("report.json"))["contamination"]["at_least"]
    assert "at least" in stage.written("report.html")


def test_a_model_of_unknown_text_is_not_called_clean(stage, caplog):
    model = commit(stage.store, "train", {"model.safetensors": "w", "config.json": "{}"})
    write(stage, stage.evaluate(model))
    assert stage.promote() == 0
    assert "does not say which documents it was trained on" in caplog.text
    assert stage.verdict()["sentence"]["en"].startswith("Not measured: whether the evaluated texts")
    assert stage.pointer("champion") is None, "not even of an empty channel"
    assert stage.promote("--accept-unmeasured", "contamination") == 0
    said = stage.verdict()["sentence"]["en"]
    assert said.startswith("Not measured, which was accepted: ") and stage.pointer("champion")


def test_contamination_measured_with_the_evaluation_cannot_be_passed_by(stage):
    stage.evaluate(stage.model(1), contamination=0.4)
    assert stage.promote("--writing", "none") == 0
    verdict = stage.verdict()
    assert verdict["outcome"] == "not valid" and stage.pointer("champion") is None
    assert verdict["sentence"]["en"].startswith(
        "Not valid: 40.00 % of the evaluated texts are in the training"
    )
    assert stage.promote("--accept-unmeasured", "contamination") == 0, "it was measured"
    assert stage.verdict()["outcome"] == "not valid" and stage.pointer("champion") is None


def test_a_gap_in_the_lineage_hides_no_contamination_and_proves_no_cleanness(stage):
    imported = commit(stage.store, "train", {"model.safetensors": "w", "config.json": "{}"})
    for share, outcome in ((0.4, "not valid"), (0.0, "not promoted")):
        model = stage.model(f"after {share}", base=imported)
        stage.evaluate(model, contamination=share)
        assert stage.promote("--writing", "none") == 0
        assert stage.verdict()["outcome"] == outcome and stage.pointer("champion") is None
    assert stage.promote("--writing", "none", "--accept-unmeasured", "contamination") == 0
    assert stage.pointer("champion")


def test_a_part_that_is_damaged_is_refused_and_not_passed_over(stage, caplog):
    stage.evaluate(stage.model(1), contamination=0.4)
    (path,) = stage.folder.glob("cas/contamination/*/*/contamination.json")
    path.write_text(path.read_text(encoding="utf-8").replace("0.4", "0.0"), encoding="utf-8")
    assert stage.promote() == 65 and "contamination.json" in caplog.text
    assert stage.pointer("champion") is None


def test_a_rule_of_verse_that_found_nothing_to_look_at_keeps_no_limit(stage, caplog):
    write(stage, stage.evaluate(stage.model(1)), rhyme={"of": 0, "share": None, "interval": None})
    assert stage.promote("--limits", "rhyme>=0.1") == 0
    assert (
        "A limit is set on a metric that was not measured: generated regular poems that rhyme" in caplog.text
    )
    assert stage.pointer("champion") is None


def test_a_rule_of_verse_is_found_by_its_name(stage):
    write(stage, stage.evaluate(stage.model(1)))
    assert stage.promote("--limits", "rhyme>=0.41") == 0 and stage.pointer("champion") is None
    assert stage.promote("--limits", "rhyme>=0.4") == 0 and stage.pointer("champion")


def test_a_model_that_writes_one_text_only_has_collapsed(stage, caplog):
    stage.evaluate(stage.model(1), texts=("明月几时有，把酒问青天。",) * 4)
    assert stage.promote() == 0
    assert "The model has collapsed: samples equal to another one of their genre" in caplog.text
    stage.evaluate(stage.model(2), texts=("明月几时有", "把酒问青天", "明月几时有", "不知天上宫阙"))
    assert stage.promote() == 0 and stage.pointer("champion"), "half of them is within the bound"
