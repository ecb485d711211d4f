"""`yanmo nights rebuild`: what was lost of lists and pages is there again, and nights go on from there."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from killed_writes import die_at_write, forked
from told import Told

from yanmo.nights.changing import change
from yanmo.nights.lists import read_index, read_month, rows_in
from yanmo.nights.publishing import rows_shown
from yanmo.nights.record import SCHEMA
from yanmo.tools.nights.command import main
from yanmo.tools.store.command import main as store_tool

LISTS = (
    "index.json",
    "index.html",
    "2026-01.json",
    "2026-01.html",
    "2026-02.json",
    "2026-02.html",
    "feed.xml",
)


def rebuild(told: Told) -> int:
    return main(["rebuild", "--store", told.uri, "--channel", "nightly"])


def months(told: Told) -> None:
    """Twenty nights in two months, each told of in several changes."""
    for number in range(20):
        if number % 4:
            told.verdict(number, "promoted" if number % 7 == 0 else "not promoted")
        else:
            told.failure(number, "first")
            told.failure(number, "no space left")


def said(told: Told) -> object:
    """What lists and pages say, without the number of the change."""
    index = read_index(told.store, "nightly")
    by_month = [read_month(told.store, "nightly", m) for m in ("2026-01", "2026-02")]
    counts = {
        month: {k: v for k, v in found.items() if k != "serial"}
        for month, found in (index or {}).get("months", {}).items()
    }
    feed_id = r"urn:uuid:[0-9a-f-]{36}"
    pages = {n: re.sub(r'content="\d+"|yanmo-serial \d+', "", d.decode()) for n, d in told.pages().items()}
    return (
        [rows_in(values) for values in (index, *by_month)],
        counts,
        {name: re.sub(feed_id, "", text) for name, text in pages.items()},
    )


def verify(told: Told) -> int:
    return store_tool(["verify", "--store", told.uri])


def test_rebuilt_of_what_is_whole_nothing_is_other_than_before(told: Told) -> None:
    months(told)
    before = said(told)
    assert rebuild(told) == 0 and said(told) == before
    assert rebuild(told) == 0 and said(told) == before


@pytest.mark.long
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(lost=st.sets(st.sampled_from([*LISTS, "../channels.json", "../index.html"]), min_size=1))
@example(lost={"2026-02.json", "2026-02.html"})
@example(lost={"index.json", "index.html"})
def test_whatever_was_lost_of_lists_and_pages_comes_back_and_follows_the_next_night(
    tmp_path_factory: pytest.TempPathFactory, lost: set[str]
) -> None:
    """Also where the page that is left says a later change than the document that is made anew."""
    told = Told(str(tmp_path_factory.mktemp("lost") / "store"))
    months(told)
    before = said(told)
    for name in lost:
        (told.folder / "nights/nightly" / name).unlink()
    assert rebuild(told) == 0
    assert said(told) == before
    told.failure(20, "the newest of all")
    assert "the newest of all" in told.text("nightly/index.html")
    assert "the newest of all" in told.text("nightly/2026-02.html")
    assert "the newest of all" in told.text("nightly/feed.xml")
    index = read_index(told.store, "nightly") or {}
    assert index["months"]["2026-02"]["nights"] == 9 and rows_shown(told.store, "nightly")[0].run_id == "r20"
    assert 'href="nightly/index.html"' in told.text("index.html")
    assert verify(told) == 0


def test_a_list_that_was_lost_follows_the_next_night_without_a_rebuild_too(told: Told) -> None:
    """What is lost of it is behind until then; what is told from now on is shown."""
    months(told)
    for name in ("index.json", "2026-02.json"):
        (told.folder / "nights/nightly" / name).unlink()
    told.failure(20, "the newest of all")
    for name in ("index.html", "2026-02.html", "feed.xml"):
        assert "the newest of all" in told.text(f"nightly/{name}")


def test_the_page_of_a_night_without_a_verdict_comes_back_whole(told: Told) -> None:
    told.failure(0)
    before = told.pages()
    (told.folder / "nights/nightly/2026-01-20-r0.html").unlink()
    assert verify(told) == 65
    assert rebuild(told) == 0 and told.pages() == before and verify(told) == 0


def test_the_lost_page_of_a_verdict_becomes_a_short_one_as_verify_advises(
    told: Told, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    told.verdict(0)
    lost = told.folder / "nights/nightly/2026-01-20-r0.html"
    lost.unlink()
    assert verify(told) == 65 and "is gone; run `yanmo nights rebuild`" in capsys.readouterr().out
    assert rebuild(told) == 0 and not lost.exists(), "promote may be about to write it"
    os.utime(told.folder / "nights/nightly/runs/r0.json", (time.time() - 7200,) * 2)
    assert rebuild(told) == 0
    assert "1 pages of verdicts were lost" in capsys.readouterr().out
    page = told.text("nightly/2026-01-20-r0.html")
    assert "Night 0: not promoted." in page and "The whole page was lost" in page and "gc" not in page
    assert verify(told) == 0 and rebuild(told) == 0
    assert told.text("nightly/2026-01-20-r0.html") == page
    told.verdict(0, "promoted")
    assert "诗诗诗" in told.text("nightly/2026-01-20-r0.html"), "who says more of the night, writes it whole"


def test_a_damaged_record_is_left_out_and_named(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        told.verdict(number)
    (told.folder / "nights/nightly/runs/r1.json").write_text('{"schema": "yanmo.night/1", "serial": 3}')
    (told.folder / "nights/nightly/index.json").unlink()
    assert rebuild(told) == 0
    assert [row.run_id for row in rows_shown(told.store, "nightly")] == ["r2", "r0"]
    assert "runs/r1.json is left out" in caplog.text and "restore it, or delete it" in caplog.text


def test_a_damaged_list_is_named_and_nothing_is_written(told: Told) -> None:
    told.verdict(0)
    (told.folder / "nights/nightly/index.json").write_text("[]")
    before = told.pages()
    assert rebuild(told) == 65 and told.pages() == before
    assert main(["rebuild", "--store", told.uri, "--channel", "no/channel"]) == 64


def rebuild_that_kills_itself(uri: str, moment: int) -> NoReturn:
    die_at_write(moment)
    sys.exit(main(["rebuild", "--store", uri, "--channel", "nightly"]))


def test_killed_at_any_write_the_same_command_comes_to_the_end(told: Told) -> None:
    for number in range(3):
        told.failure(number)
    end = said(told)
    killed = 0
    for moment in range(40):
        for info in list(told.store.list("nights")):
            if "/runs/" not in info.name and "-r" not in info.name:
                told.store.delete(info.name)
        code = forked(rebuild_that_kills_itself, told.uri, moment)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        killed += 1
        assert rebuild(told) == 0 and said(told) == end and verify(told) == 0
    assert killed > 5 and code == 0 and said(told) == end


def test_a_channel_of_any_name_has_its_own_nights(told: Told) -> None:
    """One called runs, too, whose lists lie where records of nights lie in others."""
    told.verdict(0, channel="runs")
    told.verdict(0)
    assert verify(told) == 0
    assert main(["rebuild", "--store", told.uri, "--channel", "runs"]) == 0 and verify(told) == 0
    change(told.store, "nights/runs/runs/r0.json", SCHEMA, lambda values: {**values, "note": 1})
    found = json.loads(told.text("runs/index.json"))["nights"]
    assert [night["run_id"] for night in found] == ["r0"]
