"""A killed evaluation goes on where it was, and what it left is checked."""

import json

import numpy as np
import pytest
from tiny_store import read

from yanmo.common.stage_run import main
from yanmo.common.store.output import open_reference
from yanmo.common.store.pointers import read_pointer
from yanmo.evaluate import scoring
from yanmo.evaluate.config import STAGE
from yanmo.evaluate.documents import read_split
from yanmo.evaluate.parts import Parts
from yanmo.evaluate.scoring import load_model, score
from yanmo.evaluate.work import finish, prepare, work

BITS = np.array([[1.5, 0.25], [2.5, 1.0]])


@pytest.fixture(autouse=True)
def _log_of_the_stage(monkeypatch):
    monkeypatch.setattr("yanmo.common.stage_run.setup", lambda level, stage: None)


@pytest.fixture
def parts(tmp_path):
    return Parts(tmp_path / "work")


def test_a_part_is_read_as_it_was_written(parts):
    parts.write(3, "plan", BITS)
    np.testing.assert_array_equal(parts.read(3, "plan", 2), BITS)
    assert parts.read(4, "plan", 2) is None


@pytest.mark.parametrize(
    "body",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("1.5", "1.6"),
        lambda text: "[]",
        lambda text: text.replace("[2.5, 1.0]", "[2.5]"),
        lambda text: "\0" * 100,
    ],
)
def test_a_damaged_part_is_made_again(parts, body, caplog):
    parts.write(0, "plan", BITS)
    path = parts.folder / parts.names()[0]
    path.write_text(body(path.read_text()))
    assert parts.read(0, "plan", 2) is None
    assert "it is made again" in caplog.text


def test_a_part_of_another_plan_is_not_taken(parts):
    parts.write(0, "plan", BITS)
    assert parts.read(0, "another", 2) is None
    assert parts.read(0, "plan", 1) is None


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def killed_after(monkeypatch, number):
    """Scoring dies when it begins part `number`; returns the list of parts that it scored."""
    scored, original = [], scoring._window_bits

    def window_bits(*args):
        if len(scored) == number:
            raise Killed
        scored.append(1)
        return original(*args)

    monkeypatch.setattr(scoring, "_window_bits", window_bits)
    return scored


def test_a_killed_run_scores_only_what_is_missing_and_gives_the_same_figures(ground, parts, monkeypatch):
    monkeypatch.setattr(scoring, "_PART_TOKENS", 300)
    loaded, documents = load_model(ground.model), read_split(ground.evaluation_set, "test")
    whole = score(loaded, documents, with_tag=True, workers=1)
    with monkeypatch.context() as patch:
        killed_after(patch, 2)
        with pytest.raises(Killed):
            score(loaded, documents, with_tag=True, workers=1, parts=parts)
    assert len(parts.names()) == 2
    damaged = parts.folder / parts.names()[0]
    damaged.write_text(damaged.read_text()[:-9])
    scored = killed_after(monkeypatch, 1000)
    again = score(loaded, documents, with_tag=True, workers=2, parts=parts)
    assert len(scored) == len(parts.names()) - 1 > 0
    np.testing.assert_array_equal(again.bits, whole.bits)
    np.testing.assert_array_equal(again.bits_with_tag, whole.bits_with_tag)


def evaluate(ground, *more):
    argv = ground.arguments("--documents", "none", "--samples", "2", *more)
    return main(STAGE, work, prepare=prepare, finish=finish, argv=argv)


def evaluation(ground):
    return open_reference(ground.store, read_pointer(ground.store, "dev", "evaluate"))


def test_the_stage_goes_on_after_a_kill_and_leaves_no_parts(ground, monkeypatch, caplog):
    monkeypatch.setattr(scoring, "_PART_TOKENS", 300)
    with monkeypatch.context() as patch:
        killed_after(patch, 2)
        with pytest.raises(Killed):
            evaluate(ground)
    assert len(list(ground.folder.glob("runs/evaluate/*/bits-*.json"))) == 2
    caplog.set_level("INFO", logger="yanmo")
    assert evaluate(ground) == 0
    assert "2 of " in caplog.text and "taken as they are" in caplog.text
    assert not list(ground.folder.glob("runs/evaluate/*/bits-*.json"))
    first = evaluation(ground).content_digest
    assert evaluate(ground, "--force") == 0
    assert evaluation(ground).content_digest == first


def test_a_budget_of_documents_takes_the_first_of_each_genre(ground):
    assert evaluate(ground, "--budget-documents", "5") == 0
    summary = read(evaluation(ground), "summary.json")
    assert [genre["documents"] for genre in summary["genres"].values()] == [5, 5, 5, 5]
    assert summary["conditions"]["documents_per_genre"] == "5"
    assert evaluate(ground, "--budget-documents", "12") == 0  # all that there are
    assert "documents_per_genre" not in read(evaluation(ground), "summary.json")["conditions"]


def test_a_budget_of_minutes_counts_operations_and_not_a_clock(ground):
    # The tiny model takes 48 documents x 28 tokens x 2 readings x 2 x 11,000 weights = 6e7 operations,
    # 50 microseconds at the stated speed: a third of that buys a third of the documents.
    assert evaluate(ground, "--budget-minutes", "1e-5") == 0
    some = read(evaluation(ground), "summary.json")
    number = int(some["conditions"]["documents_per_genre"])
    assert 1 <= number < 12 and some["total"]["documents"] == 4 * number
    assert evaluate(ground, "--budget-minutes", "1e-9") == 0
    assert read(evaluation(ground), "summary.json")["total"]["documents"] == 4
    assert evaluate(ground, "--budget-minutes", "60") == 0
    assert read(evaluation(ground), "summary.json")["total"]["documents"] == 48


def test_a_stride_is_a_condition_of_comparison_and_must_fit_the_model(ground, caplog):
    assert evaluate(ground, "--stride", "4") == 0
    summary = read(evaluation(ground), "summary.json")
    assert summary["conditions"]["scoring"] == "stride-4/1"
    assert evaluate(ground, "--stride", "17") == 64
    assert "--stride: stride 17: expected 1 to 16 tokens" in caplog.text
    assert evaluate(ground, "--device", "tpu") == 64
    json.dumps(summary, allow_nan=False)
