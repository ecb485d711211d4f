"""A verdict on the pages of nights: its figures in the index, the report as the night's page."""

from __future__ import annotations

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


def test_what_the_night_and_its_model_cost_is_on_the_nights_page_alone(stage, monkeypatch):
    monkeypatch.setenv("YANMO_CPU_HOUR_PRICE", "3600")
    monkeypatch.setenv("YANMO_CURRENCY", "CNY")
    stage.evaluate(stage.model(1), 8.0)
    promote(stage, "run-1")
    [row] = rows_shown(stage.store, "dev")
    tonight, whole = row.cost["money"], row.whole
    assert tonight > 0 and whole > 0
    page = stage.store.read(f"nights/dev/{row.name}.html")[0].decode()
    assert "Cost of this night" in page and f">{tonight:.2f} CNY</dd>" in page
    assert f"<b>{whole:.2f} CNY</b>" in page
    report = stage.written("report.html")
    assert "CNY" not in report and "this night" not in report, "prices are of no output"


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
    assert (row.state, row.sentence.en) == ("promoted", "Promoted: approved by li: reads well.")
    assert "Rules of promotion" in stage.store.read(f"nights/dev/{row.name}.html")[0].decode()
