"""What a year of pages of nights takes in a store, and what `gc --keep-pages` leaves of it.

    python benchmarks/night_pages.py runs/demo --channel demo

A night that was really run, with its record and the page of its verdict, is told again for each of 365 dates,
by the functions by which stages tell it: every tenth is promoted, every twentieth fails, the others are not
promoted. At some of them the store is copied, gc runs on the copy with each number of `--keep`, and all that
is below nights/ is added up. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shutil
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

from yanmo.common.errors import ExitCode
from yanmo.nights.changing import Values
from yanmo.nights.lists import read_index, rows_in
from yanmo.nights.night import Words
from yanmo.nights.places import page_name
from yanmo.nights.record import DONE, FAILED, StageEnd, read_record
from yanmo.nights.telling import Run, tell_end, tell_verdict
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store
from yanmo.store.runs.failure_card import Card
from yanmo.tools.store.command import main as store_tool

FIRST = date(2026, 1, 1)
SETTLED_SECONDS = 2.5
"""What gc leaves alone as being written maybe."""


class Sample:
    """A night that was really run: the newest with a verdict."""

    def __init__(self, uri: str, channel: str) -> None:
        store = open_store(uri)
        for row in rows_in(read_index(store, channel)):
            record = read_record(store, channel, row.run_id)
            if record and record.get("verdict", {}).get("page"):
                self.record, self.page = record, store.read(page_name(channel, row))[0].decode()
                return
        raise SystemExit(f"channel {channel} of {uri} has no night with a verdict")

    def tell(self, store: ObjectStore, number: int) -> None:
        """Tell it again, as night `number`."""
        night = (FIRST + timedelta(days=number)).isoformat()
        run = Run(store=store, channel="main", run_id=f"{number:08d}", date=night, timezone="UTC")
        fails = number % 20 == 7
        for task, stage in self.record["stages"].items():
            fault = OSError(28, "No space left on device") if fails and task == "train" else None
            card = Card.of("train", fault, "run it again", run.run_id) if fault else None
            end = StageEnd(
                task=task,
                stage=stage["stage"],
                key=stage["key"],
                state=FAILED if card else DONE,
                sentence=Words(card.why, card.why) if card else Words(),
                lines=tuple(card.lines()) if card else (),
                cost=stage["cost"],
            )
            tell_end(run, end, by_chat=False)
            if card:
                return
        state = "promoted" if number % 10 == 0 else "not promoted"
        tell_verdict(run, {**self.record["verdict"], "state": state}, self._page)

    def _page(self, night: Values) -> str:
        return re.sub(r'(yanmo-serial" content=")\d+', rf"\g<1>{night['serial']}", self.page, count=1)


def held(folder: Path) -> tuple[int, int]:
    """Bytes of the nights' own pages, and of all that is below nights/."""
    sizes = {path: path.stat().st_size for path in (folder / "nights").rglob("*") if path.is_file()}
    pages = sum(size for path, size in sizes.items() if path.name.count("-") > 2)
    return pages, sum(sizes.values())


def after_gc(folder: Path, keep: int) -> tuple[int, int]:
    """The same of a copy of the store, once gc has run there."""
    copy = folder.with_name(f"{folder.name}-{keep}")
    shutil.copytree(folder, copy)
    words = ["--older-than", "0", "--keep-pages", str(keep), "--delete"]
    with contextlib.redirect_stdout(io.StringIO()):
        code = store_tool(["gc", "--store", str(copy), *words])
    if code != ExitCode.DONE:
        raise SystemExit(code)
    found = held(copy)
    shutil.rmtree(copy)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("store", help="with a night that was really run")
    parser.add_argument("--channel", default="main")
    parser.add_argument("--nights", type=int, nargs="+", default=[30, 90, 180, 365])
    parser.add_argument("--keep", type=int, nargs="+", default=[90, 30], help="--keep-pages of gc")
    options = parser.parse_args()
    sample = Sample(options.store, options.channel)
    head = ["after night", "all whole", *(f"`--keep-pages {keep}`" for keep in options.keep), "of it pages"]
    print(f"| {' | '.join(head)} |")
    print(f"|{'---|' * len(head)}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        store = open_store(str(root))
        for number in range(max(options.nights)):
            sample.tell(store, number)
            if number + 1 not in options.nights:
                continue
            time.sleep(SETTLED_SECONDS)
            results = [held(root), *(after_gc(root, keep) for keep in options.keep)]
            cells = [f"{whole / 1e6:.1f} MB" for _, whole in results]
            pages = ", ".join(f"{pages / 1e6:.1f}" for pages, _ in results)
            print(f"| {' | '.join([str(number + 1), *cells, f'{pages} MB'])} |", flush=True)


if __name__ == "__main__":
    main()
