"""The table of optimizations: its options exist, its figures are those of the steps, its pages agree."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from optimizations import difference, figures, ratios
from optimizations_page import page
from optimizations_rows import BASE, ROWS, Row

from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_both_sides_of_a_row_are_options_of_train_and_differ(row: Row) -> None:
    on, off = (load(TrainConfig, [*BASE, *side, "--steps=120"], "train") for side in (row.on, row.off))
    assert on != off


def test_names_are_named_once() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def step(number: int, tokens: int, seconds: float, cpu: float, memory: int) -> dict[str, float]:
    return {
        **{"step": number, "loss": 1.0, "tokens": tokens, "seconds": seconds, "cpu_seconds": cpu},
        "memory_peak_bytes": memory,
    }


def test_speed_is_that_of_the_steps_after_the_first_line() -> None:
    lines = [
        step(5, 1_000, 60.0, 90.0, 7),
        step(10, 2_000, 62.0, 93.0, 9),
        {"step": 10, "valid_bits_per_character": {"诗": 7.0, "mean": 8.0}},
        step(15, 3_000, 64.0, 96.0, 9),
        {"step": 15, "valid_bits_per_character": {"诗": 6.0, "mean": 7.5}},
    ]
    assert figures(lines) == {"speed": 500.0, "cpu": 2_000 / 6, "memory": 9.0, "bits": 7.5}


def test_pairs_are_compared_with_their_interval() -> None:
    assert ratios([2.0, 3.0, 8.0], [1.0, 2.0, 2.0]) == {"median": 2.0, "least": 1.5, "largest": 4.0}
    found = difference([7.1, 7.3, 7.2], [7.0, 7.0, 7.0])
    assert found["mean"] == pytest.approx(0.2) and found["half"] == pytest.approx(4.30 * 0.1 / 3**0.5)
    assert difference([7.1], [7.0])["half"] != difference([7.1], [7.0])["half"], "one pair has no interval"


def test_pages_have_the_same_rows_and_say_what_is_not_measured() -> None:
    result = {
        **{name: {"median": 1.5, "least": 1.2, "largest": 2.0} for name in ("speed", "cpu", "memory")},
        "bits": {"mean": -0.1, "half": 0.02},
        "sides": {"on": [{}, {}]},
        **{"steps": 120, "load": 2.0, "cpus": 2},
        "made_by": {"processor": "a processor", "torch": "2", "yanmo": "abc"},
    }
    english, chinese = (page({"muon": result}, language) for language in (0, 1))
    for text, ratio, missing in (
        (english, "1.50 (1.20 to 2.00)", "Not measured yet: "),
        (chinese, "1.50（1.20 到 2.00）", "尚未测量："),
    ):
        assert f"| {ratio} |" in text and "-0.100 ± 0.020" in text and "2 x a processor" in text
        assert text.count("\n| ") == 2 and text.count(ratio) == 3
        unmeasured = next(line for line in text.splitlines() if line.startswith(missing))
        assert "`packing`" in unmeasured and "`muon`" not in unmeasured
    busy = page({"muon": result | {"load": 2.1}}, 0)
    assert busy.count("1.50 (1.20 to 2.00)") == 2, "no speed of a machine that had other work"


def test_a_page_says_how_long_rows_took_and_which_commit_made_them() -> None:
    made = {"processor": "a processor", "torch": "2", "yanmo": "abc"}
    one = {
        **{name: {"median": 1.5, "least": 1.2, "largest": 2.0} for name in ("speed", "cpu", "memory")},
        "bits": {"mean": -0.1, "half": 0.02},
        "sides": {"on": [{}, {}]},
        **{"steps": 120, "load": 1.0, "cpus": 2, "seconds": 150, "made_by": made},
    }
    later = one | {"made_by": made | {"yanmo": "def"}, "seconds": 90}
    old = {name: value for name, value in later.items() if name != "seconds"}
    text = page({"muon": one, "batch": later, "packing": old}, 0)
    assert "The 2 rows whose result says it took 4 minutes together;" in " ".join(text.split())
    assert "commit abc: `muon`\n" in text and "commit def: `packing`, `batch`\n" in text
    assert "`--batch-rows=8` `--steps=240` beside `--steps=120`" in text
