"""What a person sees of a training: from lines as it writes them, whole, cut, damaged and hostile."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from yanmo.formats.stage_cost import lines_in
from yanmo.store.runs.failure_card import Card
from yanmo.tools.watch.curve import curve
from yanmo.tools.watch.shown import shown, warnings
from yanmo.tools.watch.training import Training

KEY = "b41ab0931ad2" + 52 * "0"


def interval(step: int, **more: Any) -> dict[str, Any]:
    loss = 5.0 - step / 1000
    return {
        "step": step,
        "loss": loss,
        "perplexity": math.exp(loss),
        "bits_per_character": 2 * loss,
        "learning_rate": 0.01,
        "grad_norm": 0.5,
        "tokens_per_second": 8000.0,
        "seconds": step * 1.0,
        "seconds_left": 450.0 - step,
        "phase_seconds": {"forward": 3.0, "backward": 6.0, "data": 1.0},
        **more,
    }


def at_work(*lines: dict[str, Any], **more: Any) -> Training:
    return Training(key=KEY, state="at work", holder="laptop", steps=450, lines=list(lines), **more)


def printed(training: Training, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(shown(training, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_progress_figures_phases_and_curve() -> None:
    lines = [interval(step) for step in range(10, 211, 10)]
    lines.append({"step": 210, "curve_bits_per_character": {"mean": 9.71, "诗": 9.5}})
    text = printed(at_work(*lines))
    assert text.startswith("train/b41ab0931ad2  at work on laptop\n")
    assert "step 210 of 450 (46 %), 3 min 30 s so far, 4 min 00 s left" in text
    for figure in ("loss 4.790", "bits per character 9.580", "gradient norm 0.5", "tokens/s 8,000"):
        assert figure in text
    assert "time  backward 60 %  forward 30 %  data 10 %" in text
    assert "now 9.580; validation 9.710 at step 210" in text
    assert "   9.980 ⠉" in text and "step 10 to 210" in text
    assert not warnings(at_work(*lines, silent_seconds=40.0, heartbeats={0: 1.0, 1: 0.2}))


def test_what_stands_still_is_said() -> None:
    lines = [interval(step) for step in range(10, 60, 10)]
    (still,) = warnings(at_work(*lines, silent_seconds=61.0))
    assert still == "stands still: no line for 1 min 01 s; a line comes every 10 s"
    slow = [interval(step, seconds=step * 60.0) for step in range(10, 60, 10)]
    assert not warnings(at_work(*slow, silent_seconds=2999.0)), "600 s between its lines are usual"
    assert warnings(at_work(*slow, silent_seconds=3001.0))
    (rank,) = warnings(at_work(*lines, silent_seconds=5.0, heartbeats={0: 1.0, 3: 45.0}))
    assert rank == "rank 3 has shown no sign of life for 45 s"
    (lost,) = warnings(at_work(*lines, interval(60, loss=None, bits_per_character=None)))
    assert "loss not finite" in lost


CARD = Card(
    stage="train",
    exit_code=75,
    why="was killed by SIGKILL",
    where="rank 1 of 2, in training step 5",
    checkpoint="step 4",
    saved_at=1005802065.0,
    command="yanmo train --steps=9 \x1b[2J",
    made_at="2001-11-15T05:28:20+00:00",
)


def test_a_training_that_nobody_works_on_shows_how_it_failed_and_how_it_goes_on() -> None:
    text = printed(Training(key=KEY, state="left", lines=[interval(4)], failures=[CARD, CARD]))
    assert "train failed with exit code 75 (may pass: try again)" in text
    assert "why: was killed by SIGKILL" in text and "last good checkpoint: step 4, 35 s old" in text
    assert "to go on: yanmo train --steps=9 " in text and "1 earlier failures" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("state", ["at work", "done"])
def test_one_that_went_on_says_so_in_a_line(state: str) -> None:
    text = printed(Training(key=KEY, state=state, lines=[interval(4)], failures=[CARD]))
    assert "went on after a failure at 2001-11-15T05:28:20+00:00: which: rank 1 of 2" in text
    assert "to go on" not in text


def test_events_are_shown_the_newest_last_and_cannot_steer_the_terminal() -> None:
    events = [{"step": n, "event": "skipped", "samples": 32} for n in range(7)]
    events.append({"step": 9, "event": "rewind", "reason": "\x1b[2Jspike", "from_step": 12})
    text = printed(at_work(interval(10), *events))
    assert "3 earlier events\nstep 3: skipped (samples 32)" in text
    assert text.rstrip().endswith("from_step 12)") and "\x1b" not in text and "[red]" not in text


@pytest.mark.parametrize("state", ["left", "done"])
def test_a_training_without_a_line_is_shown(state: str) -> None:
    text = printed(Training(key=KEY, state=state, note="nothing is uploaded yet"))
    assert "train/b41ab0931ad2" in text and "nothing is uploaded yet" in text and "step 0" in text


VALUES = st.one_of(st.none(), st.floats(), st.integers(), st.text(), st.just([]), st.just({"mean": "x"}))


@given(
    st.lists(
        st.fixed_dictionaries(
            {"step": st.integers(0, 10**12)},
            optional=dict.fromkeys(
                [*interval(1).keys() - {"step"}, "event", "mfu", "memory_bytes", "valid_bits_per_character"],
                VALUES,
            ),
        ),
        max_size=6,
    ),
    st.integers(20, 200),
)
def test_whatever_the_lines_hold_it_is_shown(found: list[dict[str, Any]], width: int) -> None:
    text = "\n".join(json.dumps(line) for line in found)
    printed(at_work(*lines_in(text)), width)


@given(
    st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), min_size=1, max_size=50),
    st.integers(1, 120),
    st.integers(1, 12),
)
def test_a_curve_keeps_its_size_and_shows_both_ends(
    points: list[tuple[float, float]], width: int, height: int
) -> None:
    points.sort()
    lines = curve(points, width, height)
    assert [len(line) for line in lines] == [width] * height
    columns = {n for line in lines for n, character in enumerate(line) if character != " "}
    spread = points[-1][0] > points[0][0]
    assert columns == set(range(width)) if spread else columns == {0}


def test_a_falling_line_falls() -> None:
    assert curve([(0, 1), (1, 0)], 2, 1) == ["⠑⢄"]
