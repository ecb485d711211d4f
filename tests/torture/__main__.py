"""`make torture`, or `PYTHONPATH=tests python -m torture`: break a small pipeline, and count what is lost.

A torture that was stopped goes on where it was, as long as seed and commit are the same. Exit code 0 when
nothing was found, 1 when something was.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torture import disk, flips, hostile_part, kills, misplaced, network, races, tls, tools
from torture.ground import Ground, Record, open_ground, say

PARTS: dict[str, Callable[..., None]] = {
    "gc": tools.run_gc,
    "flips": flips.run,
    "misplaced": misplaced.run,
    "twins": races.run_twins,
    "clocks": races.run_clocks,
    "disk": disk.run,
    "hostile": hostile_part.run,
    "network": network.run,
    "heads": network.run_heads,
    "tls": tls.run,
}
"""All but the kills, in order."""
OVER_A_NETWORK = ("network", "heads", "tls")
BRIEF: dict[str, dict[str, Any]] = {
    "gc": {"times": 3, "tries": 5},
    "flips": {"times": 2},
    "misplaced": {"times": 2},
    "clocks": {"names": tuple(races.CLOCKS)[::3]},
    "disk": {"times": 1},
    "hostile": {"sample": 150},
    "network": {"rates": (0.1,)},
    "heads": {"rates": (0.3,)},
    "tls": {"rates": (0.3,)},
}
_KILLS, _BRIEF_KILLS = 200, 12


def main() -> int:
    """Run what the command line asks for; returns the exit code."""
    given = _arguments()
    say(f"seed {given.seed}")
    found = []
    for kind in ("file", "s3") if given.store == "both" else (given.store,):
        record = Record(given.out / f"{kind}-{given.seed}.json", kind, given.seed)
        with open_ground(kind, given.out / "ground" / kind, given.seed, keep=given.keep) as ground:
            for part in ("kills", *PARTS) if given.only == "all" else (given.only,):
                _run(part, ground, record, given)
        found += _report(record)
        if not given.keep:
            shutil.rmtree(given.out / "ground" / kind, ignore_errors=True)
    print(f"\n{len(found)} findings" + "".join(f"\n- {finding[:2000]}" for finding in found))
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("--store", choices=("file", "s3", "both"), default="both", help="kind of store")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help=f"per kind of store ({_KILLS})")
    parser.add_argument("--brief", action="store_true", help="less of every part")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), metavar="S")
    parser.add_argument("--only", choices=("all", "kills", *PARTS), default="all", help="one part")
    parser.add_argument("--out", type=Path, default=Path("runs/torture"), metavar="DIR", help="results, logs")
    parser.add_argument("--keep", action="store_true", help="leave the stores and logs for a look")
    return parser.parse_args()


def _run(part: str, ground: Ground, record: Record, given: argparse.Namespace) -> None:
    if part == "kills":
        _run_kills(ground, record, given.kills or (_BRIEF_KILLS if given.brief else _KILLS))
    elif ground.kind == "s3" or part not in OVER_A_NETWORK:
        PARTS[part](ground, record, **(BRIEF.get(part, {}) if given.brief else {}))


def _run_kills(ground: Ground, record: Record, count: int) -> None:
    """Journeys until there are `count` kills."""
    done = sum(len(journey["kills"]) for journey in record.value["journeys"])
    number = len(record.value["journeys"])
    while done < count:
        with ground.place() as place:
            journey = kills.travel(ground.profile, place, ground.folder, number, ground.seed)
        record.add("journeys", journey.to_json())
        done += len(journey.kills)
        number += 1
        say(f"journey {number}: {done} of {count} kills; findings: {len(journey.findings)}")
        for finding in journey.findings:
            say(f"    {finding[:1500]}")


def _report(record: Record) -> list[str]:
    """Print the tables of one kind of store; returns the findings."""
    value = record.value
    print(f"\n{value['store']}: seed {value['seed']}, commit {value['commit']}, {value['machine']}")
    journeys = [kills.Journey.from_json(journey) for journey in value["journeys"]]
    if journeys:
        _print_table(
            [["killed before", "kills", "in the last second", "any time", "late"], *kills.table(journeys)]
        )
        for what in ("damaged", "lost", "orphans", "wrong_digests", "failed"):
            print(f"{what.replace('_', ' '):<16}{sum(len(getattr(j, what)) for j in journeys)}")
        after = sum(len(j.leftovers_after_gc) for j in journeys)
        print(f"{'leftovers':<16}{sum(j.leftovers for j in journeys)}, after gc: {after}")
    if value["cases"]:
        rows = [[c["part"], c["name"], "BAD" if c["findings"] else c["outcome"]] for c in value["cases"]]
        _print_table([["part", "case", "outcome"], *rows])
    found = [finding for journey in journeys for finding in journey.findings]
    return found + [f"{c['part']}: {c['name']}: {f}" for c in value["cases"] for f in c["findings"]]


def _print_table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
