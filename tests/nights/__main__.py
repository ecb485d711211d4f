"""`make nights`, or `PYTHONPATH=tests python -m nights`: the next nights of one channel, on a real cluster.

KUBECONFIG and KFP_ENDPOINT name the cluster, AWS_ENDPOINT_URL and its keys the store as this machine sees it
(benchmarks/NOTES.md). Nights that were run are noted in one file, and a later sitting goes on after them.
Exit code 0 where nothing was found, 1 where something was, 78 where this machine lacks what is needed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType

from torture.ground import commit, machine
from torture.stages import ROOT

from nights import checks
from nights.local_road import local_road
from nights.plan import BLOCK, FAULTS, nights
from nights.record import Record, read_record
from nights.road import CHANNEL, NotHere, Road
from nights.sitting import SEEDS, Sitting, say
from nights.table import write_table

THIRTY = ROOT / "tests/nights/thirty.json"
"""The record of nights on a cluster with `--docs`: the pages are made from it, and later sittings go on."""


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; returns the exit code."""
    given = _arguments(argv)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background command ignores SIGINT
        signal.signal(number, _interrupt)
    try:
        with _road(given) as road:
            found = _sit(road, given)
    except NotHere as reason:
        print(reason, file=sys.stderr)
        return 78
    except KeyboardInterrupt:
        print(
            "interrupted; finished nights are kept, and the next sitting goes on after them", file=sys.stderr
        )
        return 130
    print(f"{len(found)} findings" + "".join(f"\n- {finding[:2000]}" for finding in found))
    return 1 if found else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make nights", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nights", type=int, default=BLOCK, metavar="N", help=f"in this sitting ({BLOCK})")
    parser.add_argument("--seed", type=int, default=19, metavar="S", help="of the plan (19)")
    parser.add_argument(
        "--local", nargs="?", const="s3", choices=("folder", "s3"), help="on this machine, without a cluster"
    )
    parser.add_argument("--lab", type=Path, metavar="DIR", help="folder of the lab: its node may be stopped")
    parser.add_argument("--host", default="", metavar="ADDRESS", help="this machine's, as pods see it")
    parser.add_argument("--only", nargs="+", choices=FAULTS, help="these faults in turn, not the deck's")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/nights"), metavar="DIR", help="logs, local stores"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="of nights that were run; default: in --out"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS,
        help=f"models that differ by their seed ({SEEDS}; 0: champions unjudged)",
    )
    parser.add_argument("--docs", action="store_true", help="write the table in benchmarks/NOTES.md")
    return parser.parse_args(argv)


def _road(given: argparse.Namespace) -> AbstractContextManager[Road]:
    if given.local:
        return local_road(given.local, given.out / given.local)
    from nights.cluster_road import cluster_road

    return cluster_road(given.out / "cluster", given.lab, given.host)


def _sit(road: Road, given: argparse.Namespace) -> list[str]:
    of_docs = THIRTY if given.docs and not given.local else given.out / f"{road.name}-{given.seed}.json"
    path = given.record or of_docs
    record = _record(path, road, given.seed)
    record.commits.append(commit())
    deck = road.deck
    if given.only:
        deck = (*(given.only[n % len(given.only)] for n in range(BLOCK - 2)), "quiet", "quiet")
    planned = nights(given.seed, len(record.nights) + given.nights, deck)
    sitting = Sitting(road, record, planned, given.seeds)
    say(f"{road.name}, seed {given.seed}: nights {len(record.nights) + 1} to {len(planned)}")
    try:
        sitting.hold()
        found = sitting.leave_clean()
    finally:
        if given.docs and record.nights:
            write_table(ROOT / "benchmarks/NOTES.md", record)
    return record.findings + found


def _record(path: Path, road: Road, seed: int) -> Record:
    """That of the nights before, or a new one.

    Where the store no longer has the champion that the record knows, the nights go on with a new store, and
    the record says so.
    """
    try:
        record = read_record(path)
    except FileNotFoundError:
        return Record(
            path=path, seed=seed, road=road.name, store=road.place.uri, channel=CHANNEL, machine=machine()
        )
    champion = (checks.reference(road.place, CHANNEL, "champion") or {}).get("content_digest", "")
    if record.nights and champion[:12] != record.nights[-1].champion:
        number = len(record.nights) + 1
        said = f"from night {number} on: a new store, as that of the nights before is gone"
        record.notes.append(said)
        record.starts.append(number)
        record.pinned = ""
        say(said)
    return record


if __name__ == "__main__":
    sys.exit(main())
