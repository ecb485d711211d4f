"""Measures Yanmo beside others, in turn: `make bench`, `make bench ONLY=tokens,generation`.

Results are written to benchmarks/results/NAME.json, one by one; docs/measurements.py makes the tables of the
pages from them. What the others need is installed into .bench/, once; that wants a network.
Some measure the model of a store in which `make demo` ran: STORE=runs/demo.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.declared import NAMES, Benchmark, benchmark
from bench.environments import python_of
from yanmo.common.control_group import usable_cpus
from yanmo.common.made_by import made_by
from yanmo.store.opening import open_store
from yanmo.store.pointers import read_pointer

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help=f"some of {', '.join(NAMES)}, with commas")
    parser.add_argument("--store", default="runs/demo", help="a store in which `make demo` ran")
    parser.add_argument("--channel", default="demo")
    parser.add_argument("--rounds", type=int, default=0, help="instead of each benchmark's own number")
    parser.add_argument(
        "--list", action="store_true", help="only say which there are, and how long they take"
    )
    given = parser.parse_args()
    # pip compiles what it installs, and the first start of Yanmo its modules: with this, each start would.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    names = [name.strip() for name in given.only.split(",") if name.strip()] or list(NAMES)
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if given.rounds < 0:
        parser.error("--rounds: give 1 or more")
    if given.list:
        print(
            "\n".join(f"{one.name:12} {one.minutes:3} min  {one.title[0]}" for one in map(benchmark, names))
        )
        return
    chosen = [benchmark(name) for name in names]
    _check_store(parser, chosen, given)
    made = made_by()
    for one in chosen:
        _write(one.name, run(one, given, made))


def _check_store(parser: argparse.ArgumentParser, chosen: list[Benchmark], given: argparse.Namespace) -> None:
    """End before anything is measured if a store is missing that one of them needs."""
    wanting = [one.name for one in chosen if one.needs_store]
    if wanting and read_pointer(open_store(given.store), given.channel, "champion") is None:
        parser.error(
            f"{', '.join(wanting)}: channel {given.channel} of {given.store} has no model; run `make demo` "
            "first, or name a store with STORE=..."
        )


def run(one: Benchmark, given: argparse.Namespace, made: dict[str, str]) -> dict[str, Any]:
    """Measure one benchmark in a process of its environment.

    Args:
        made: by what; asked before the first one, as the results are files of the checkout too.
    """
    began = time.monotonic()
    rounds = given.rounds or one.rounds
    python = python_of(one)
    store = open_store(given.store).uri if one.needs_store else ""
    with tempfile.TemporaryDirectory(prefix=f"bench-{one.name}-") as folder:
        place = {"store": store, "channel": given.channel, "rounds": rounds, "folder": folder}
        place["peer"] = python if one.is_apart else ""
        described = Path(folder, "place.json")
        described.write_text(json.dumps(place), encoding="utf-8")
        command = [sys.executable if one.is_apart else python, "-m", "bench.rounds", one.name, str(described)]
        own = str(Path(__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": own, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{one.name}: ended with {done.returncode}; its own message is above")
    return {
        "groups": json.loads(done.stdout.splitlines()[-1]),
        "rounds": rounds,
        "packages": list(one.packages),
        "cpus": usable_cpus(),
        "made_by": made,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }


def _write(name: str, found: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
