"""The verdict in one sentence, before all that it rests on."""

import re
from typing import get_args

import pytest

from yanmo.promote.gate.headline import _WHY, conditions, headline
from yanmo.promote.gate.verdict import Outcome, Words

GAIN = {"share": 0.0123, "bits": 0.1}


def verdict(outcome, failed="", gain=GAIN):
    checks = [
        {"name": "not_collapsed", "passed": True},
        *([{"name": failed, "passed": False}] if failed else []),
    ]
    return {"outcome": outcome, "checks": checks, "gain": gain, "noise": {"margin": 0.007}}


CASES = [
    verdict("promoted"),
    verdict("promoted", gain=None),
    *(verdict("not valid" if name == "not_contaminated" else "not promoted", name) for name in _WHY),
    *(
        verdict("not promoted", name, {"share": -0.004, "bits": -0.03})
        for name in ("beyond_doubt", "large_enough")
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_it_begins_with_the_outcome_and_has_at_most_20_words(case):
    said = headline(case)
    assert said.en.lower().startswith(f"{case['outcome']}: ") and case["outcome"] in get_args(Outcome)
    assert len(said.en.split()) <= 20 and said.en.count(".") == 1 + len(re.findall(r"\d\.\d", said.en))
    assert said.zh.startswith(("晋升：", "不晋升：", "无效：")) and len(said.zh) <= 40


@pytest.mark.parametrize("gain", [GAIN, None])
def test_a_winner_that_waits_for_a_person_is_not_called_promoted(gain):
    said = headline(verdict("promoted", gain=gain), is_held=True)
    assert said.en.startswith("Held: it won") and len(said.en.split()) <= 20 and "romoted" not in said.en
    assert said.zh.startswith("待定：胜出") and "晋升" not in said.zh
    assert ("1.23 %" in said.en) is ("1.23 %" in said.zh) is (gain is not None)


def test_the_conditions_do_not_say_the_outcome_again():
    words = Words(
        "The seed's noise was not measured. Not promoted: the gain is small.", "未测量。不晋升：提升太小。"
    )
    assert conditions(words) == Words(
        "The seed's noise was not measured. The gain is small.", "未测量。提升太小。"
    )
