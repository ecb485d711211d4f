"""A verdict on the pages of nights: its figures in the index, the report as the night's page."""

from __future__ import annotations

import re

from yanmo.nights.publishing import rows_shown


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
    page = stage.store.read(f"nights/dev/{first.name}.html")[0].decode()
    assert "Rules of promotion" in page and 'href="index.html"' in page
    assert 'href="index.html"' not in stage.written("report.html"), "the report by itself leads nowhere"


def test_a_verdict_found_again_keeps_its_row(stage):
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1")
    promote(stage, "run-1")
    assert [row.state for row in rows_shown(stage.store, "dev")] == ["promoted"]
    promote(stage, "run-2")
    again = {row.run_id: row for row in rows_shown(stage.store, "dev")}
    assert {run: row.state for run, row in again.items()} == {"run-1": "promoted", "run-2": "nothing new"}
    assert again["run-2"].sentence.en.startswith("Nothing new to judge since ")


def test_a_dry_run_and_a_verdict_by_hand_are_no_nights(stage):
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1", "--dry-run")
    assert stage.promote() == 0
    assert not list(stage.store.list("nights"))


def test_a_model_that_is_held_waits_on_the_index_until_a_person_decides(stage):
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1", "--hold")
    [row] = rows_shown(stage.store, "dev")
    assert row.state == "held" and row.sentence.en.startswith("Held for approval until ")
    model = stage.pointer("evaluate") and stage.pointer("train").key
    assert stage.tool("approve", f"train/{model}", "--who", "li", "--why", "reads well", "--yes") == 0
    [row] = rows_shown(stage.store, "dev")
    assert row.state == "promoted"
    assert re.match(
        r"Approved by li, 20.+ UTC: reads well\. It became champion\. Promoted: ", row.sentence.en
    )
    page = stage.store.read(f"nights/dev/{row.name}.html")[0].decode()
    assert "Rules of promotion" in page and 'href="index.html"' in page
    assert "Approved by li, 20" in page and "reads well" in page and "Held for approval" not in page


def test_the_nights_page_says_who_rejected_its_model_and_why(stage):
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1", "--hold")
    assert stage.tool("reject", "--who", "wu", "--why", "dull <b>verse</b>", "--yes") == 0
    [row] = rows_shown(stage.store, "dev")
    assert row.state == "not promoted" and "Rejected by wu, 20" in row.sentence.en
    page = stage.store.read(f"nights/dev/{row.name}.html")[0].decode()
    assert "Rejected by wu, 20" in page and "dull &lt;b&gt;verse" in page and "Held for approval" not in page
    promote(stage, "run-2", "--hold")
    again = {one.run_id: one.state for one in rows_shown(stage.store, "dev")}
    assert again == {"run-1": "not promoted", "run-2": "not promoted"}


def test_a_night_after_the_approval_says_who_approved_what_it_found(stage, tmp_path):
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1", "--hold")
    assert stage.tool("approve", "--who", "li", "--why", "reads well", "--yes") == 0
    promote(stage, "run-2")
    row = {one.run_id: one for one in rows_shown(stage.store, "dev")}["run-2"]
    assert row.state == "nothing new"
    assert "Approved by li, 20" in stage.store.read(f"nights/dev/{row.name}.html")[0].decode()


def test_a_night_whose_model_lost_a_newer_comparison_says_that_it_waits_no_longer(stage):
    stage.evaluate(stage.model(1), 8.0)
    assert stage.promote() == 0
    own = f"evaluate/{stage.pointer('champion_evaluation').key}"
    held = stage.evaluate(stage.model(2), 7.8)
    promote(stage, "run-2", "--hold", "--champion", own)
    stronger = stage.evaluate(stage.model(3), 7.0)
    promote(stage, "run-3", "--challenger", f"evaluate/{stronger.reference.key}", "--champion", own)
    promote(stage, "run-4", "--hold", "--challenger", f"evaluate/{held.reference.key}")
    row = {one.run_id: one for one in rows_shown(stage.store, "dev")}["run-2"]
    assert row.state == "not promoted" and "Waits no longer for approval since 20" in row.sentence.en
    page = stage.store.read(f"nights/dev/{row.name}.html")[0].decode()
    assert "Waits no longer for approval" in page and "Held for approval" not in page
