"""The champions of a channel, and who was taken down, as a person reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from yanmo.common.aligned_table import text_table
from yanmo.common.errors import DataError, ExitCode
from yanmo.store.champion_records import CHAMPION, ChampionRecord, all_records, named
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import open_reference, read_json
from yanmo.store.pointers import read_pointer


def show_history(store: ObjectStore, channel: str, *, as_json: bool) -> int:
    """Print it; returns the exit code."""
    pointed, records = read_pointer(store, channel, CHAMPION), all_records(store, channel)
    now = records[-1].model if records else pointed
    if as_json:
        document = {"channel": channel, "champion": asdict(now) if now else None}
        print(json.dumps({**document, "records": [asdict(r) for r in records]}, ensure_ascii=False, indent=1))
        return ExitCode.DONE
    if records:
        rows = [["number", "since (UTC)", "champion", "bits", "how"]]
        rows += [_row(store, record) for record in records]
        print("\n".join(text_table(rows)))
        print(_current(records, pointed))
    else:
        print(f"channel {channel} of {store.uri} has no champion yet")
    return ExitCode.DONE


def _row(store: ObjectStore, record: ChampionRecord) -> list[str]:
    how = f"verdict {named(record.verdict)}"
    if record.who:
        how += f", set by {record.who}: {record.why}"
    if record.kind == "rollback":
        how = f"rollback to {record.restores} by {record.who}: {record.why}"
    since = record.since.removesuffix(" UTC")
    return [str(record.number), since, named(record.model), _bits(store, record.evaluation), how]


def _bits(store: ObjectStore, evaluation: Reference) -> str:
    try:
        summary = read_json(open_reference(store, evaluation), "summary.json")
        return f"{summary['mean']['bits_per_character']:.3f}"
    except (DataError, KeyError, TypeError):
        return "lost"


def _current(records: Sequence[ChampionRecord], pointed: Reference | None) -> str:
    last, names = records[-1], {record.model.content_digest: named(record.model) for record in records}
    lines = [f"\nchampion: {named(last.model)}"]
    if pointed != last.model:
        lines.append(f"The pointer {CHAMPION} names {named(pointed)}; the next promote or rollback mends it.")
    lines += [f"rolled back: {names.get(one.model, one.model[:12])}, {one}" for one in last.rolled_back]
    return "\n".join(lines)
