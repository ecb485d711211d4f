"""A night's name, and what of anybody's text is shown."""

from __future__ import annotations

import pytest

from yanmo.nights.night import Row, plain
from yanmo.nights.record import StageEnd
from yanmo.store.objects import as_part


@pytest.mark.parametrize("run_id", ["../../x", "a/b", "行", "", "a" * 500, "-"])
def test_a_runs_id_is_one_part_of_a_name(run_id: str) -> None:
    part = as_part(run_id)
    assert part and "/" not in part and part.isascii() and len(part) <= 100
    assert as_part(part) == part, "a name of its own"


def test_two_runs_never_share_a_name() -> None:
    ids = ["行", "诗", "a/b", "a-b", "a" * 100, "a" * 101, "", "-"]
    assert len({as_part(one) for one in ids}) == len(ids)


def test_no_text_steers_or_breaks_what_shows_it() -> None:
    hostile = "a\x00\u202eb\ud800\ufffe\uffffc" + "长" * 10_000
    shown = plain(hostile, 50)
    assert len(shown) == 50 and shown.isprintable()
    shown.encode()
    assert plain("长" * 50, 50) == "长" * 50 and plain("长" * 51, 50) == "长" * 49 + "…"


@pytest.mark.parametrize("wrong", [{"date": "2026-13-01"}, {"date": "../x"}, {"state": "won"}])
def test_what_is_no_row_is_refused(wrong: dict[str, str]) -> None:
    good = {"date": "2026-11-23", "run_id": "r", "began": "2026-11-23T13:00:00+00:00", "state": "failed"}
    assert Row(**good).name == "2026-11-23-r"
    with pytest.raises(ValueError):
        Row(**{**good, **wrong})
    with pytest.raises(ValueError):
        StageEnd(task="train", state="done", at="yesterday")
