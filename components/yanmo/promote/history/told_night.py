"""What a person decided of a held model, on the page of the night that made it."""

from __future__ import annotations

from typing import Any

from yanmo.nights.night import night_date
from yanmo.nights.record import read_record
from yanmo.nights.settings import team_zone
from yanmo.nights.telling import Run, never_failing, tell_verdict
from yanmo.promote.gate.verdict import Words
from yanmo.promote.history.champion_records import shown_time
from yanmo.store.channel.held import Entry
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output


def held_row(row: dict[str, Any], entry: Entry, words: Words) -> dict[str, Any]:
    """What the index says of a verdict whose model waits, or was rejected."""
    state = "not promoted" if entry.state == "rejected" else "held"
    return {**about_row(row, words), "state": state}


def found_row(row: dict[str, Any], verdict: Output, about: Words | None) -> dict[str, Any]:
    """What the index says of a night that found its verdict made: there was nothing new to judge."""
    at = shown_time(verdict.manifest.created_at)
    since = Words(f"Nothing new to judge since {at}.", f"自 {at} 起没有新的可判。")
    return {**about_row(row, about or since), "state": "nothing new"}


def about_row(row: dict[str, Any], about: Words) -> dict[str, Any]:
    """What the index says of a verdict, with what its run was about before it."""
    said = row["sentence"]
    return {**row, "sentence": {"en": f"{about.en} {said['en']}", "zh": f"{about.zh}{said['zh']}"}}


def approved_sentence(who: str, why: str) -> Words:
    """Who made a held model champion."""
    return Words(f"Promoted: approved by {who}: {why}.", f"晋升：由 {who} 批准：{why}。")


def tell_decision(store: ObjectStore, channel: str, entry: Entry, words: Words, *, promoted: bool) -> None:
    """Let the night of a held model say how it was decided; nothing where no night has that model."""
    name, zone = team_zone()
    date = night_date(store.clock(), zone)
    run = Run(store=store, channel=channel, run_id=entry.run_id, date=date, timezone=name)
    with never_failing(run):
        if not entry.run_id or read_record(store, channel, entry.run_id) is None:
            return
    state = "promoted" if promoted else "not promoted"
    tell_verdict(run, {"state": state, "sentence": {"en": words.en, "zh": words.zh}})
