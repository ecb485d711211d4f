"""A report of balance with every part, for tests of its page."""

from __future__ import annotations

from typing import Any

from hostile_pages import poisoned

from yanmo.balance.page import Example, page

NUMBERS: dict[str, Any] = dict.fromkeys(("documents", "characters", "tokens"), 1234)
FIGURES: dict[str, Any] = {"before": {**NUMBERS, "shares": dict.fromkeys(NUMBERS, 0.25)}, "epochs": 2.0}
FIGURES["after"] = FIGURES["before"]
REPORT: dict[str, Any] = {
    "by": "dynasty",
    "unit": "characters",
    "quotas": "size^0.7",
    "tokens": "estimated: in some way",
    "warnings": ["唐: size^0.7 is not reached"],
    "classes": {
        "唐": {**FIGURES, "quota": "300%", "missing": 3},
        "宋": {**FIGURES, "quota": "", "missing": 0},
    },
    "genres": {"诗": FIGURES, "词": FIGURES},
    "augmentation": {"options": "wen:synonym=1", "rules": {"repeat": 7}, "shared": 2, "advice": ["try it"]},
}


def poisoned_page(more: str) -> str:
    report = poisoned(REPORT, more, keys=("classes", "genres", "rules"), kept=("unit",))
    pair = (f"天地玄黄{more}", f"天地玄青{more}")
    return page(report, [Example("ab" * 32, f"诗{more}", f"synonym{more}", *pair)])
