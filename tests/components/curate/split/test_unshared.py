"""What is held out of text in which many documents say the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HAN = "的一是了我不人在他有这上们来到时大地为子中你说生国年着就那和要她出也得里后自以会家可下而过天去能对"
SAID = "感谢您的信任您的情况建议先到当地医院做一个详细的检查然后把结果发给我看再决定怎么治疗祝您早日康复"


def documents(number: int, is_said: bool, genre: str, seed: int) -> list[dict[str, Any]]:
    """Texts of 150 characters, of which a third is the same sentence where it `is_said`."""
    draw = random.Random(seed)
    return [
        {
            "text": "".join(draw.choices(HAN, k=150 - len(SAID) * is_said)) + SAID * is_said + "。",
            "genre": genre,
            "title": f"{genre} {'said' if is_said else 'free'} {i}",
        }
        for i in range(number)
    ]


@pytest.fixture
def mixed(write_jsonl: Callable[..., Path]) -> Path:
    """Of genre 问 half of the texts have a sentence in common, of 套 all."""
    rows = documents(150, True, "问", 1) + documents(150, False, "问", 2) + documents(60, True, "套", 3)
    random.Random(0).shuffle(rows)
    return write_jsonl("mixed.jsonl", rows)


def test_texts_that_many_others_repeat_are_not_held_out(curate: Any, mixed: Path) -> None:
    run = curate(mixed, "--text-form", "modern-1", "--max-overlap-share", "1", "--min-split-documents", "5")
    for split in ("test", "valid"):
        titles = [row["title"] for row in run.rows(split)]
        assert len([t for t in titles if t.startswith("问")]) >= 5
        assert not [t for t in titles if t.startswith("问 said")], titles
        assert [t for t in titles if t.startswith("套")], (
            "a genre that has no other texts is held out all the same"
        )


def test_then_few_go_from_train(curate: Any, write_jsonl: Callable[..., Path]) -> None:
    rows = documents(150, True, "问", 1) + documents(150, False, "问", 2)
    run = curate(write_jsonl("half.jsonl", rows), "--text-form", "modern-1")
    assert len([row for row in run.rows("train") if row["title"].startswith("问 said")]) == 150


def test_in_classical_text_the_choice_is_as_before(curate: Any, mixed: Path) -> None:
    run = curate(mixed, "--text-form", "classical-1", "--max-overlap-share", "1")
    assert [row for row in run.rows("test") if row["title"].startswith("问 said")]
