"""The sweeps of docs/advice.md: their options exist, and the page shows what was measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from advice import BASE, SWEEPS, Setting, Sweep, known, name_of, table

from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig

DOCS = Path(__file__).parents[2] / "docs"
SETTINGS = [(sweep, setting) for sweep in SWEEPS for setting in sweep.settings]


@pytest.mark.parametrize(
    ("sweep", "setting"), SETTINGS, ids=[f"{a.name}-{b.row}-{b.column}" for a, b in SETTINGS]
)
def test_a_setting_is_options_of_train_and_each_seed_has_a_name_of_its_own(
    sweep: Sweep, setting: Setting
) -> None:
    assert load(TrainConfig, [*BASE, *setting.options], "train").steps > 0
    names = [name_of(a, b, seed) for a, b in SETTINGS for seed in range(a.seeds)]
    assert len(set(names)) == len(names)


def test_settings_of_one_batch_sweep_read_equally_many_tokens() -> None:
    for sweep in (s for s in SWEEPS if s.name in ("verse", "modern")):
        configs = [load(TrainConfig, [*BASE, *s.options], "train") for s in sweep.settings]
        assert len({c.steps * c.batch_rows * c.context for c in configs}) == 1


@pytest.mark.parametrize("page", ["advice.md", "advice.zh.md"])
def test_the_page_shows_what_was_measured(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for sweep in SWEEPS:
        for line in table(sweep)[2:]:
            assert line in text, f"python benchmarks/advice.py tables: {line}"
    assert known()
