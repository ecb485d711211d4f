"""How a run ended: by its last stage, by its verdict, or by whoever else says so; never by a guess."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

import pytest
from conftest import VERDICT, end_of, run_of, text_of

from yanmo.nights.index import report_begin, report_end, rows_shown
from yanmo.nights.record import RUN, record_verdict
from yanmo.store.objects import ObjectStore


def state(store: ObjectStore) -> str:
    return rows_shown(store, "nightly")[0].state


def test_the_last_stage_of_a_run_ends_it_where_no_verdict_does(store: ObjectStore) -> None:
    """The first task knows which it is; a stage knows of itself alone."""
    for task in ("resolve", "curate", "balance"):
        report_end(run_of(store, last="tokenize" if task == "resolve" else task), end_of(task))
        assert state(store) == "begun", task
    report_end(run_of(store, last="tokenize"), end_of("tokenize"))
    row = rows_shown(store, "nightly")[0]
    assert (row.state, row.sentence.en) == ("done", "tokenize is done.")
    assert re.fullmatch(r"\d\d:\d\d", row.time) and row.time in text_of(store, "nights/nightly/index.html")


@pytest.mark.parametrize("said", ["terminated", "failed", "done"])
def test_what_somebody_else_says_holds_until_the_run_goes_on(store: ObjectStore, said: str) -> None:
    """KFP's Retry of a run that was terminated."""
    report_end(run_of(store), end_of("resolve"))
    report_begin(run_of(store), end_of("train", "working", seconds=0.0))
    report_end(run_of(store), end_of(RUN, said))
    assert state(store) == said
    report_begin(run_of(store), end_of("train", "working", seconds=0.0))
    report_end(run_of(store), end_of("train"))
    assert state(store) == "begun"
    record_verdict(run_of(store), VERDICT)
    report_end(run_of(store), end_of("promote"))
    assert state(store) == "promoted"
