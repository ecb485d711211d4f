"""The table of optimizations: its options exist, its figures are those of the steps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from optimizations import difference, figures, ratios
from optimizations_rows import BASE, ROWS, Row

from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_both_sides_of_a_row_are_options_of_train_and_differ(row: Row) -> None:
    on, off = (load(TrainConfig, [*BASE, *side, "--steps=120"], "train") for side in (row.on, row.off))
    assert on != off


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
