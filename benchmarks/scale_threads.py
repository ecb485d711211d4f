"""Ranks beside threads of one process, as the same batch: `python benchmarks/scale_threads.py --rounds 15`.

All groups of processes (scale_measure.py) stay alive and take turns in random order, so that what else runs
on the machine meets all of them; what counts is the median of the fastest third. Prints the rows of the table
in docs/nodes.md.
"""

from __future__ import annotations

import argparse
import os
import random
import sys

from scale_cells import CELLS
from scale_measure import Group, quick

WAYS = {
    "1 thread": (1, 1),
    "2 threads": (1, 2),
    "2 ranks": (2, 1),
    "4 ranks": (4, 1),
}
"""Name -> ranks, and threads of each."""
MEASURED = ("narrow, 256", "wide, 256")


def main() -> None:
    """Measure, and print each cell's seconds of a step, with the ratio to one thread."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, metavar="N")
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="in each turn")
    given = parser.parse_args()
    groups = {way: Group(*counts) for way, counts in WAYS.items()}
    loads, order = [os.getloadavg()[0]], random.Random(0)
    found: dict[tuple[str, str], list[float]] = {(cell, way): [] for cell in MEASURED for way in groups}
    try:
        for number in range(given.rounds + 1):  # the first makes engines and caches
            turns = sorted(found)
            order.shuffle(turns)
            for cell, way in turns:
                answers = groups[way].ask(do="train", cell=CELLS[cell], steps=given.steps)
                found[cell, way] += [max(answer["seconds"] for answer in answers)] if number else []
            loads.append(os.getloadavg()[0])
            print(f"round {number} of {given.rounds}, load {loads[-1]:.1f}", file=sys.stderr, flush=True)
    finally:
        for group in groups.values():
            group.end()
    print(f"load {min(loads):.1f} to {max(loads):.1f}, {os.cpu_count()} cores")
    for cell in MEASURED:
        seconds = [quick(found[cell, way]) for way in WAYS]
        print(f"| {cell} | " + " | ".join(f"{s:.3f} ({seconds[0] / s:.2f})" for s in seconds) + " |")


if __name__ == "__main__":
    main()
