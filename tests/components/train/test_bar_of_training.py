"""The bar of a training in a real pseudo-terminal, below the lines of its ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from terminal import in_a_terminal

BAR = re.compile(
    r"step \d[\d,]*/1,500 [━╸╺]{6,40} 0:\d\d:\d\d left, "
    r"loss \d\.\d{3}, \d+\.\d{3} bits/character, [\d,]+ tokens/s"
)


def command(store: Path, tiny: dict[str, object], **more: object) -> list[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**tiny, **more}.items()]
    return ["-m", "yanmo.train", f"--store={store}", "--metrics-port=-1", *flags]


@pytest.mark.process
def test_a_training_shows_how_far_it_is_below_its_log(store: Path, tiny: dict[str, object]) -> None:
    words = command(store, tiny, steps=1500, log_every=10)
    code, screen, text = in_a_terminal(words, columns=140)
    assert code == 0, text
    bars = [line for line in screen.erased if BAR.fullmatch(line)]
    assert len({bar.partition("/")[0] for bar in bars}) > 1, text
    assert "\x1b[?25" not in text and screen.lines[-1] == "" and "━" not in "".join(screen.lines), text
    assert all(re.match(r"\d\d:\d\d:\d\d train ", line) for line in screen.lines[:-1]), screen.lines
    assert any("step 1500 of 1500 (100 %): loss" in line for line in screen.lines), "its own line, as ever"


@pytest.mark.process
def test_ctrl_c_saves_the_training_and_leaves_a_clean_terminal(store: Path, tiny: dict[str, object]) -> None:
    words = command(store, tiny, steps=100_000, log_every=10)
    code, screen, text = in_a_terminal(words, interrupt_at="━")
    assert code == 75 and "saved at step" in text, text
    assert screen.lines[-1] == "" and "━" not in "".join(screen.lines), text
