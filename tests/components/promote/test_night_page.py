"""A verdict on the index of nights: its figures, and the way to its page."""

from __future__ import annotations

import json

from yanmo.nights.index import rows_shown


def promote(stage, run_id, *more):
    assert stage.promote("--run-id", run_id, *more) == 0


def test_a_verdict_is_on_the_index_with_its_page(stage):
    stage.evaluate(stage.model(1), 8.0, texts=("床前明月光\n疑是地上霜",))
    promote(stage, "run-1")
    stage.evaluate(stage.model(2), 8.3)
    promote(stage, "run-2")
    second, first = sorted(rows_shown(stage.store, "dev"), key=lambda row: row.run_id, reverse=True)
    assert (first.state, second.state) == ("promoted", "not promoted")
    assert first.verse == "床前明月光\n疑是地上霜" and first.genre == "诗"
    assert abs(first.bits - 8.0) < 0.1 and first.gain is None and second.gain < 0
    assert first.sentence.en.startswith("Promoted") and first.sentence.zh
    index = stage.store.read("nights/dev/index.html")[0].decode()
    for row in (first, second):
        assert f'href="../../{row.page}"' in index
        assert "Rules of promotion" in stage.store.read(row.page)[0].decode()


def test_a_verdict_found_again_keeps_its_row(stage):
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1")
    promote(stage, "run-1")
    assert [row.state for row in rows_shown(stage.store, "dev")] == ["promoted"]
    promote(stage, "run-2")
    again = {row.run_id: row for row in rows_shown(stage.store, "dev")}
    assert {run: row.state for run, row in again.items()} == {"run-1": "promoted", "run-2": "nothing new"}
    assert again["run-2"].sentence.en.startswith("Unchanged: found. The verdict is of ")


def test_a_dry_run_and_a_verdict_by_hand_are_no_nights(stage):
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1", "--dry-run")
    assert stage.promote() == 0
    assert not list(stage.store.list("nights"))


def test_a_winner_that_is_held_is_on_the_index_with_what_makes_it_champion(stage):
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1", "--hold")
    [row] = rows_shown(stage.store, "dev")
    model = stage.pointer("train").key[:12]
    assert row.state == "held" and f"yanmo promote set train/{model} --store " in row.sentence.en
    assert row.sentence.en.startswith("Held: it won, and waits for a person. The champion stays as it is ")
    assert "Promoted" not in row.sentence.en
    assert stage.pointer("champion") is None
    assert "yanmo promote set" in stage.store.read("nights/dev/index.html")[0].decode()


def test_a_verdict_of_an_earlier_run_that_moves_the_champion_now_is_no_old_one(stage):
    """As where the earlier run had no right to the pointer."""
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1", "--hold")
    promote(stage, "run-2")
    rows = {row.run_id: row for row in rows_shown(stage.store, "dev")}
    assert {run: row.state for run, row in rows.items()} == {"run-1": "held", "run-2": "promoted"}
    assert rows["run-2"].sentence.en.startswith("Promoted: it is the channel's first champion. ")
    promote(stage, "run-3")
    assert {row.run_id: row.state for row in rows_shown(stage.store, "dev")}["run-3"] == "nothing new"


def test_the_page_of_a_held_winner_shows_no_seal_of_a_promotion(stage, tmp_path):
    stage.evaluate(stage.model(1), 8.0)
    asked = {"report": {"artifacts": [{"name": "report", "uri": str(tmp_path / "report")}]}}
    kfp = json.dumps({"outputs": {"artifacts": asked, "outputFile": str(tmp_path / "out.json")}})
    promote(stage, "run-1", "--hold", "--executor-input", kfp)
    page = (tmp_path / "report").read_text(encoding="utf-8")
    assert ".verdict > .seal, .verdict h1 { display: none; }" in page
    assert page.index("Held: it won") < page.index('<header class="verdict">')
