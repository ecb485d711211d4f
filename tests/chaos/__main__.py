"""`make chaos`, or `PYTHONPATH=tests python -m chaos`: break Yanmo on purpose, and count what is lost.

Each case has a name, and part, name and seed do it again. Exit code 0 where nothing was found, 1 where
something was, 78 where this machine lacks all that was asked for.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from chaos import collect, disk, kills, network, nights, races
from chaos.ground import Ground, open_ground
from chaos.hostile import folders, formats, options, store_files
from chaos.hostile.cases import part
from chaos.plan import Case, Record, Skip, say

PARTS: dict[str, Callable[[Ground], Iterator[Case]]] = {
    "kills": kills.cases,
    "gc": collect.cases,
    "twins": races.twins,
    "clocks": races.clocks,
    "disk": disk.cases,
    "network": network.cases,
    "tls": network.tls_cases,
    "options": part("options", options.situations),
    "formats": part("formats", formats.situations),
    "store": part("store", store_files.situations),
    "folders": part("folders", folders.situations),
    "nights": nights.cases,
}
STORES = {"both": ("file", "s3"), "file": ("file",), "s3": ("s3",)}


def main() -> int:
    """Run what the command line asks for; returns the exit code."""
    given = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background command ignores SIGINT
        signal.signal(number, _interrupt)
    say(f"seed {given.seed}")
    records = []
    try:
        for kind in STORES[given.store]:
            records.append(Record(given.out / f"{kind}-{given.seed}.jsonl", kind, given.seed))
            _on(kind, records[-1], given)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    findings = [finding for record in records for finding in record.findings]
    print("\n\n".join(record.table() for record in records))
    print(f"\n{len(findings)} findings" + "".join(f"\n- {finding[:2000]}" for finding in findings))
    none = all(each.skipped for record in records for each in record.tried)
    return 1 if findings else 78 if none else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument("--store", choices=STORES, default="both", help="kind of store")
    parser.add_argument("--case", default="", metavar="NAME", help="only cases whose name begins so")
    parser.add_argument(
        "--count", type=int, default=0, metavar="N", help="how many: kills, nights, hostile cases"
    )
    parser.add_argument("--brief", action="store_true", help="less of every part")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), metavar="S")
    parser.add_argument("--out", type=Path, default=Path("runs/chaos"), metavar="DIR", help="results, logs")
    parser.add_argument("--keep", action="store_true", help="leave the stores and logs for a look")
    return parser.parse_args()


def _on(kind: str, record: Record, given: argparse.Namespace) -> None:
    """Every part that was asked for, on one kind of store."""
    folder = given.out.absolute() / "ground" / kind
    how = {"brief": given.brief, "count": given.count, "case": given.case, "keep": given.keep}
    try:
        with open_ground(kind, folder, given.seed, **how) as ground:
            for part in given.only:
                found = PARTS[part](ground)
                record.try_all(case for case in found if case.name.startswith(given.case))
    except Skip as reason:
        say(f"{kind}: left out: {reason}")
    if not given.keep:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
