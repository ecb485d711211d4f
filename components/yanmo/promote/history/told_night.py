"""What the index of nights says of a verdict."""

from __future__ import annotations

from typing import Any

from yanmo.promote.gate.verdict import Decision, Words
from yanmo.promote.history.champion_records import shown_time
from yanmo.store.output import Output

_STATES = {"held": "held", "approved": "promoted"}
"""State of a decision -> of its night; the others leave the champion where it is."""


def held_row(row: dict[str, Any], decision: Decision) -> dict[str, Any]:
    """What the index says of a verdict whose model waits, or about which a person decided."""
    return {**about_row(row, decision.words), "state": _STATES.get(decision.state, "not promoted")}


def found_row(row: dict[str, Any], verdict: Output, about: Words | None) -> dict[str, Any]:
    """What the index says of a night that found its verdict made: there was nothing new to judge."""
    at = shown_time(verdict.manifest.created_at)
    since = Words(f"Nothing new to judge since {at}.", f"自 {at} 起没有新的可判。")
    return {**about_row(row, about or since), "state": "nothing new"}


def about_row(row: dict[str, Any], about: Words) -> dict[str, Any]:
    """What the index says of a verdict, with what its run was about before it."""
    said = row["sentence"]
    return {**row, "sentence": {"en": f"{about.en} {said['en']}", "zh": f"{about.zh}{said['zh']}"}}
