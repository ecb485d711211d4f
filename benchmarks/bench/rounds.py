"""Runs one benchmark in its environment: `python -m bench.rounds NAME PLACE.json`, a process of its own.

The last line of its output is what was measured. Contestants take turns, the other way round in every other
round; a first round of each warms caches up and is not counted.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.declared import Group, Place, benchmark


def main() -> None:
    name, given = sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    folder, rounds = Path(given["folder"]), given["rounds"]
    place = Place(given["store"], given["channel"], given["peer"], folder)
    os.environ["OMP_NUM_THREADS"] = "1"
    with benchmark(name).open(place) as groups:
        found = [measured(group, rounds) for group in groups]
    print(json.dumps(found, ensure_ascii=False))


def measured(group: Group, rounds: int) -> dict[str, Any]:
    """The figures of a group's contestants, round by round, and the load of the machine around them."""
    load = [os.getloadavg()[0]]
    for work in group.contestants.values():
        work()
    figures: dict[str, list[float]] = {name: [] for name in group.contestants}
    for number in range(rounds):
        for name in in_turn(list(group.contestants), number):
            figures[name].append(group.contestants[name]())
        print(f"{group.title[0]}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    load.append(os.getloadavg()[0])
    return {"title": group.title, "figures": figures, "load": [round(x, 1) for x in load]}


def in_turn(names: Sequence[str], number: int) -> list[str]:
    """The order of a round: forwards, backwards, each time beginning with another one."""
    begin = (number // 2) % len(names)
    order = [*names[begin:], *names[:begin]]
    return order if number % 2 == 0 else order[::-1]


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds that this process and the processes it waited for spent on it."""
    began = _spent()
    work()
    return _spent() - began


def _spent() -> float:
    """CPU seconds so far, to a microsecond: `os.times` counts in hundredths of a second."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def times_a_cpu_second(work: Callable[[], object], least: float = 0.5) -> float:
    """How often it can be done in a CPU second; done again until this much was spent, as a few milliseconds
    cannot be measured beside other work."""
    count, spent = 0, 0.0
    while spent < least:
        spent += cpu_seconds(work)
        count += 1
    return count / spent


def seconds(work: Callable[[], object]) -> float:
    """Seconds that it took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
