"""`yanmo nights ls`: the newest nights of a channel, a line each."""

from __future__ import annotations

import json
from dataclasses import dataclass

from yanmo.common.aligned_table import text_table
from yanmo.common.errors import ExitCode
from yanmo.common.logs import human_seconds
from yanmo.nights.lists import rows_in
from yanmo.nights.night import Row
from yanmo.nights.places import list_page
from yanmo.nights.telling import page_address
from yanmo.options.fields import opt
from yanmo.options.shared import ToolOptions, channel_opt
from yanmo.store.objects import ObjectStore
from yanmo.tools.nights.given import index_of


@dataclass(frozen=True, kw_only=True)
class LsOptions(ToolOptions, group="ls"):
    """Show the newest nights of a channel: how each one ended, and what it cost.

    It reads what the stages wrote, and lists no bucket.
    """

    channel: str = channel_opt("channel whose nights are shown")
    json: bool = opt(False, "for scripts: one JSON document")


def run(store: ObjectStore, options: LsOptions) -> int:
    rows = rows_in(index_of(store, options.channel))
    if options.json:
        nights = [{**row.to_dict(), "page": page_address(store, options.channel, row)} for row in rows]
        print(json.dumps({"channel": options.channel, "nights": nights}, ensure_ascii=False, indent=1))
        return ExitCode.DONE
    if not rows:
        print(f"channel {options.channel} of {store.uri} has no night yet")
        return ExitCode.DONE
    print("\n".join(text_table([["date", "night", "bits", "took", "run", "why"], *map(_cells, rows)])))
    page = list_page(options.channel)
    print(f"\nall of them: {store.uri}/{page}")
    return ExitCode.DONE


def _cells(row: Row) -> list[str]:
    bits = "-" if row.bits is None else f"{row.bits:.3f}"
    seconds = row.cost.get("seconds")
    took = "-" if seconds is None else human_seconds(seconds)
    return [row.date, row.state, bits, took, row.run_id[:24], row.sentence.en[:100]]
