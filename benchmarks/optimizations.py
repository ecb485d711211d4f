"""Each optimization of `yanmo train` with it and without it, in turn: speed, memory and bits.

    python benchmarks/optimizations.py --store runs/demo --channel demo --again
    python benchmarks/optimizations.py --store runs/demo --channel demo --only muon packing --again --seeds 3

needs a token cache in the channel (`make demo` leaves one). The rows are those of optimizations_rows.py. A
row is trained as often as there are seeds, each time with it and without it, one after the other and the
other way round the next time. Every training is `yanmo train` as a user starts it, in a store of its own
that is removed at the end; figures come from its metrics.jsonl.

A result is written to benchmarks/results/optimizations.json as soon as a row has ended. Without --again rows
that have a result are left out, so that a second command goes on where the first one stopped.
docs/measurements.py makes the tables of the pages from it.

speed: tokens a second with it, divided by those without it; steps alone, without start-up.
CPU: tokens a CPU-second, the same way.
memory: largest resident memory of one rank, the same way.
bits: bits per character on the validation split, mean of the genres, with it minus without it, of the same
seed; the interval is Student's, over the seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from optimizations_rows import BASE, ROWS, Row

from yanmo.common.control_group import usable_cpus
from yanmo.common.made_by import made_by
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer

RESULTS = Path(__file__).parent / "results/optimizations.json"
STUDENT_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Degrees of freedom -> quantile of 97.5 %."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True, help="folder of the store with the token cache")
    parser.add_argument("--channel", default="demo")
    parser.add_argument("--only", nargs="+", default=[], choices=[row.name for row in ROWS], metavar="ROW")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure rows that have a result too")
    measure(parser.parse_args())


def known() -> dict[str, Any]:
    """The results so far, by name of the row."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def measure(given: argparse.Namespace) -> None:
    """Measure the rows that are asked for and write each result down."""
    cache = cache_of(Path(given.store), given.channel)
    made = made_by()  # once: the results that are written here are files of the checkout too
    for row in ROWS:
        if (given.only and row.name not in given.only) or (row.name in known() and not given.again):
            continue
        found = {**measured(row, given, cache), "made_by": made}
        RESULTS.parent.mkdir(exist_ok=True)
        merged = known() | {row.name: found}
        RESULTS.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(row.name, json.dumps({k: found[k] for k in ("speed", "cpu", "memory", "bits")}), flush=True)


def measured(row: Row, given: argparse.Namespace, cache: tuple[str, list[Path]]) -> dict[str, Any]:
    """One row: both sides for each seed, in turn."""
    sides: dict[str, list[dict[str, float]]] = {"on": [], "off": []}
    loads, began = [], time.monotonic()
    for seed in range(given.seeds):
        loads.append(os.getloadavg()[0])
        for side in ("on", "off") if seed % 2 == 0 else ("off", "on"):
            own, steps = (row.on, row.longer * given.steps) if side == "on" else (row.off, given.steps)
            options = [*BASE, *own, f"--seed={seed + 1}", f"--steps={steps}"]
            sides[side].append(trained(cache, options))
    return {
        "sides": sides,
        **{
            figure: ratios([s[figure] for s in sides["on"]], [s[figure] for s in sides["off"]])
            for figure in ("speed", "cpu", "memory")
        },
        "bits": difference([s["bits"] for s in sides["on"]], [s["bits"] for s in sides["off"]]),
        "options": {"on": row.on, "off": row.off},
        "steps": given.steps,
        "load": round(max(loads), 1),
        "cpus": usable_cpus(),
        "seconds": round(time.monotonic() - began),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def cache_of(store: Path, channel: str) -> tuple[str, list[Path]]:
    """The token cache of a channel's newest `tokenize` in a store on this disk, as STAGE/KEY, and the folders
    of the outputs that a training reads: of the cache and its tokenizer.

    Raises:
        SystemExit: there is none.
    """
    opened = open_store(str(store))
    pointer = read_pointer(opened, channel, "tokenize")
    if pointer is None:
        raise SystemExit(f"channel {channel} of {store} has no token cache: run `make demo` first")
    cache = open_reference(opened, pointer)
    both = (cache.manifest, cache.part("tokenizer").manifest)
    return f"tokenize/{cache.manifest.key}", [store / "cas" / m.stage / m.key for m in both]


def trained(cache: tuple[str, list[Path]], options: Sequence[str]) -> dict[str, float]:
    """One training, in a store of its own that links the outputs: what it cost and what it reached."""
    key, outputs = cache
    with tempfile.TemporaryDirectory(prefix="optimizations-", dir=outputs[0].parents[2]) as folder:
        for path in outputs:
            target = Path(folder, *path.parts[-3:])
            shutil.copytree(path, target, copy_function=os.link)
        command = [sys.executable, "-m", "yanmo.train", f"--store={folder}", "--channel=dev", *options]
        command += [f"--token-cache={key}", "--metrics-port=-1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(options)}: ended with {done.returncode}\n{done.stderr[-2000:]}")
        reference = read_pointer(open_store(folder), "dev", "train")
        assert reference is not None
        written = open_reference(open_store(folder), reference).path("metrics.jsonl")
        lines = [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]
    return figures(lines)


def figures(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """From the lines of metrics.jsonl; the first line of steps holds what is done once, and is left out."""
    steps = [line for line in lines if "loss" in line]
    first, last = steps[0], steps[-1]
    tokens = last["tokens"] - first["tokens"]
    valid = [line["valid_bits_per_character"]["mean"] for line in lines if "valid_bits_per_character" in line]
    return {
        "speed": tokens / (last["seconds"] - first["seconds"]),
        "cpu": tokens / (last["cpu_seconds"] - first["cpu_seconds"]),
        "memory": float(last["memory_peak_bytes"]),
        "bits": valid[-1],
    }


def ratios(on: Sequence[float], off: Sequence[float]) -> dict[str, float]:
    """Median, least and largest ratio of the pairs."""
    found = [a / b for a, b in zip(on, off, strict=True)]
    return {"median": statistics.median(found), "least": min(found), "largest": max(found)}


def difference(on: Sequence[float], off: Sequence[float]) -> dict[str, float]:
    """Mean difference of the pairs, and half the width of its interval of 95 %; NaN of one pair."""
    found = [a - b for a, b in zip(on, off, strict=True)]
    if len(found) < 2:
        return {"mean": found[0], "half": math.nan}
    half = STUDENT_95[min(len(found) - 1, 9)] * statistics.stdev(found) / math.sqrt(len(found))
    return {"mean": statistics.mean(found), "half": half}


if __name__ == "__main__":
    main()
