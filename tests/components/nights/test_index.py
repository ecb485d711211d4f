"""Runs on the index: entered once, newest first, as many as fit, and what anybody may write is no link."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from conftest import VERDICT, end_of, failure, run_of, text_of

from yanmo.common.errors import DataError
from yanmo.nights import index
from yanmo.nights.index import report_begin, report_end, report_verdict, rows_shown
from yanmo.nights.night import Words
from yanmo.store.objects import ObjectStore

PAGE = f"cas/promote/{'ab' * 32}/attempt-1/report.html"


def test_a_run_is_one_row_from_its_begin_to_its_verdict(store: ObjectStore) -> None:
    report_end(run_of(store), end_of("resolve"))
    assert [row.state for row in rows_shown(store, "nightly")] == ["begun"]
    report_begin(run_of(store), end_of("train", "working", seconds=0.0))
    report_end(run_of(store), end_of("train"))
    report_verdict(run_of(store), replace(VERDICT, page=PAGE))
    [row] = rows_shown(store, "nightly")
    assert (row.state, row.bits, row.gain, row.page, row.seconds) == ("promoted", 8.102, 0.01, PAGE, 120.0)
    page = text_of(store, "nights/nightly/index.html")
    assert f'href="../../{PAGE}"' in page and "晋升：少用 1.00 % 比特。" in page and "同遊南北登城" in page


def test_a_failure_is_shown_with_its_card_until_another_try_succeeds(store: ObjectStore) -> None:
    report_end(run_of(store), failure())
    [row] = rows_shown(store, "nightly")
    assert row.state == "failed" and row.lines == ("train failed", "why: out of memory")
    assert "why: out of memory" in text_of(store, "nights/nightly/index.html")
    report_end(run_of(store), end_of("train"))
    [row] = rows_shown(store, "nightly")
    assert row.state == "begun" and not row.lines
    assert "out of memory" not in text_of(store, "nights/nightly/index.html")


def test_of_a_run_behind_a_newer_one_that_nobody_ended_no_end_is_claimed(store: ObjectStore) -> None:
    """A killed process, a terminated run, a stage by itself: nothing guesses how it ended."""
    report_end(run_of(store), end_of("resolve"))
    assert "It goes on." in text_of(store, "nights/nightly/index.html")
    report_verdict(run_of(store, "run-2"), VERDICT)
    page = text_of(store, "nights/nightly/index.html")
    assert "No end of it is recorded" in page and "It goes on." not in page
    assert [row.state for row in rows_shown(store, "nightly")] == ["promoted", "begun"]


def test_the_newest_runs_are_kept_and_the_records_of_all(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "NEWEST", 3)
    for day in range(1, 6):
        report_verdict(run_of(store, f"run-{day}"), VERDICT)
    assert [row.run_id for row in rows_shown(store, "nightly")] == ["run-5", "run-4", "run-3"]
    assert len(list(store.list("nights/nightly/runs"))) == 5


@pytest.mark.parametrize("page", ["javascript:alert(1)", "../../../etc/passwd", PAGE + "?x"])
def test_only_the_page_of_a_verdict_becomes_a_link(store: ObjectStore, page: str) -> None:
    report_verdict(run_of(store), replace(VERDICT, page=page))
    assert [row.page for row in rows_shown(store, "nightly")] == [""]
    assert "href=" not in text_of(store, "nights/nightly/index.html").partition('class="nights"')[2]


def test_what_a_run_says_is_text_on_the_page_and_no_markup(store: ObjectStore) -> None:
    words = Words("<script>alert(1)</script>", "<b>坏</b>")
    report_end(run_of(store), end_of(state="failed", sentence=words, lines=("<i>x</i>",)))
    page = text_of(store, "nights/nightly/index.html")
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page and "&lt;i&gt;x" in page


def test_a_page_of_an_earlier_change_never_takes_the_place_of_a_later_one(store: ObjectStore) -> None:
    """Also where the index was lost meanwhile, and is begun again."""
    report_verdict(run_of(store, "run-1"), VERDICT)
    report_verdict(run_of(store, "run-2"), VERDICT)
    page = text_of(store, "nights/nightly/index.html")
    store.delete("nights/nightly/index.html")
    store.create("nights/nightly/index.html", page.replace('content="2"', 'content="7"').encode())
    report_verdict(run_of(store, "slow-run"), VERDICT)
    assert "slow-run" not in text_of(store, "nights/nightly/index.html")
    store.delete("nights/nightly/index.json")
    report_verdict(run_of(store, "run-3"), VERDICT)
    assert "run-3" in text_of(store, "nights/nightly/index.html")


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff" * 100, b'{"schema": "yanmo.nights/9"}'])
def test_a_damaged_index_is_named_and_fails_no_run(
    store: ObjectStore, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store.create("nights/nightly/index.json", data)
    report_verdict(run_of(store), VERDICT)
    assert "the index of nights of channel nightly is behind" in caplog.text
    assert "nights/nightly/index.json" in caplog.text
    with pytest.raises(DataError):
        rows_shown(store, "nightly")
    assert json.loads(text_of(store, "nights/nightly/runs/run-1.json"))["state"] == "promoted"
