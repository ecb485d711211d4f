"""What a person reads while a stage runs."""

from __future__ import annotations

import io
import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common import logs
from yanmo.common.logs import Progress, human_bytes, human_seconds, setup


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_durations_read_as_a_person_says_them(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (6_100_000, "6.1 MB"), (2e15, "2000.0 TB")]
)
def test_sizes_are_in_decimal_units(count: float, text: str) -> None:
    assert human_bytes(count) == text


def test_progress_speaks_once_a_period_with_speed_and_time_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: clock[0])
    caplog.set_level(logging.INFO)
    progress = Progress(logging.getLogger("test"), "trained", 100, unit="steps")
    for _ in range(50):
        clock[0] += 0.5
        progress.add(1, note="loss 3.2")
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "trained 20 of 100 steps (20 %), 2 steps/s, 40 s left; loss 3.2",
        "trained 40 of 100 steps (40 %), 2 steps/s, 30 s left; loss 3.2",
    ]


@given(st.text(alphabet=st.characters(categories=("Cc", "Cf", "Zl", "Zp", "Lo", "Po", "Nd")), max_size=30))
def test_a_log_line_never_steers_a_terminal(text: str) -> None:
    stream = io.StringIO()
    setup("info", "test")
    handler = logging.getLogger().handlers[-1]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    logging.getLogger("yanmo.x").warning("genre %s", text)
    line = stream.getvalue().removesuffix("\n")
    steering = {c for c in line if unicodedata.category(c) in ("Cc", "Zl", "Zp")} - {"\t", "\n"}
    assert not steering and not {*line} & {
        *"\u061c\u200b\u200e\u200f\u202a\u202b\u202d\u202e\u2066\u2069\ufeff"
    }
    assert all(c in line for c in text if unicodedata.category(c)[0] in "LPN")
