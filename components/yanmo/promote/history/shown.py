"""The champions of a channel, who waits to become one, and who was turned down, as a person reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

from yanmo.common.aligned_table import text_table
from yanmo.common.errors import DataError, ExitCode
from yanmo.nights.places import held_page_name
from yanmo.promote.history.champion import CHAMPION, named
from yanmo.promote.history.champion_records import ChampionRecord, all_records, shown_time
from yanmo.store.channel.held import Entry, read_held
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import open_reference, read_json
from yanmo.store.pointers import read_pointer


def show_history(store: ObjectStore, channel: str, *, as_json: bool) -> int:
    """Print it; returns the exit code."""
    records, now = all_records(store, channel), read_pointer(store, channel, CHAMPION)
    held = read_held(store, channel).entries
    if as_json:
        waiting = [{**asdict(e), "standing": e.standing(now, time.time())} for e in held]
        document = {"channel": channel, "champion": asdict(now) if now else None, "held": waiting}
        print(json.dumps({**document, "records": [asdict(r) for r in records]}, ensure_ascii=False, indent=1))
        return ExitCode.DONE
    if records:
        rows = [["number", "since (UTC)", "champion", "bits", "how"]]
        rows += [_row(store, record) for record in records]
        print("\n".join(text_table(rows)))
        print(_current(records, now))
    else:
        print(f"channel {channel} of {store.uri} has no champion yet")
    for entry in held:
        if entry.state != "approved":
            print(shown_entry(entry, now))
            print(f"  its page: {store.uri}/{held_page_name(channel, entry.verdict.key)}")
    return ExitCode.DONE


def shown_entry(entry: Entry, champion: Reference | None) -> str:
    """A held model in a line or two."""
    name, since = named(entry.model), shown_time(entry.held_at)
    standing = entry.standing(champion, time.time())
    by = f"{shown_time(entry.decided_at)} by {entry.who}: {entry.why}" if entry.who else entry.why
    said = {
        "waits": f"waits for a person since {since}, until {shown_time(entry.expires_at)}",
        "stale": f"waits since {since}, but was compared with {named(entry.previous)}; the champion is "
        f"{named(champion)} now: compare it again (yanmo promote --hold)",
        "expired": f"was held {since}; nobody decided until {shown_time(entry.expires_at)}",
        "signed": f"approved {by}, but not promoted yet: yanmo promote approve finishes it",
        "approved": f"approved {by}",
        "rejected": f"rejected {by}",
        "withdrawn": f"waits no longer: {by}",
    }[standing]
    lines = [f"{'held' if standing in ('waits', 'stale', 'expired') else 'decided'}: {name} {said}"]
    if standing in ("waits", "stale", "signed"):
        lines.append(f"  {entry.sentence}")
    return "\n".join(lines)


def _row(store: ObjectStore, record: ChampionRecord) -> list[str]:
    how = f"verdict {named(record.verdict)}"
    if record.who:
        how += f", approved by {record.who}: {record.why}"
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


def _current(records: Sequence[ChampionRecord], now: Reference | None) -> str:
    last, names = records[-1], {record.model.content_digest: named(record.model) for record in records}
    lines = [f"\nchampion: {named(now)}"]
    if now is None:
        lines.append(
            "The pointer to the champion is lost; a rollback without --to brings the last one back, and "
            "until then no model is promoted."
        )
    elif now.content_digest != last.model.content_digest:
        lines.append(
            "The last change is not in the history yet; the next promote or the same rollback enters it."
        )
    lines += [f"rolled back: {names.get(one.model, one.model[:12])}, {one}" for one in last.rolled_back]
    return "\n".join(lines)
