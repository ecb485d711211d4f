"""Documents and megabytes per second of `yanmo curate`, beside datatrove doing the same steps in one run.

    python benchmarks/curate.py [--datatrove /path/to/python] [--times 10] [--workers 2]

datatrove wants an environment of its own, named by --datatrove; `make bench ONLY=curation` makes one,
.bench/curation/bin/python. Without it only ours is run.
Ours does more than is compared: it splits, keeps clusters out of train, plants copies, hashes and fsyncs. CPU
seconds are those of all processes, from start to exit; compare figures of one run only. The larger input is
the bundled corpus --times over, each time with its characters exchanged one for one, so that sizes, copies
and near copies are those of real text but no text is repeated.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import zstandard

CORPUS = Path(__file__).parents[1] / "corpus" / "small.jsonl.zst"
PEER = Path(__file__).parent / "curate_datatrove.py"
_SUBREAPER = (
    36  # PR_SET_CHILD_SUBREAPER: workers whose parent ended become ours, and their seconds are counted
)


@dataclass(frozen=True)
class Cost:
    """What a command took, all its processes together."""

    wall: float
    cpu: float
    peak_bytes: int
    """Of its largest process."""


def measure(command: list[str], log: Path) -> Cost:
    """Run `command` to its end."""
    start, cpu, peak = time.monotonic(), 0.0, 0
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    while True:
        try:
            pid, status, usage = os.wait4(-1, 0)
        except ChildProcessError:
            break
        if pid == process.pid:
            wall = time.monotonic() - start
            if status:
                sys.exit(f"{' '.join(command)} failed:\n{log.read_text(errors='replace')[-3000:]}")
        cpu += usage.ru_utime + usage.ru_stime
        peak = max(peak, usage.ru_maxrss * 1024)
    return Cost(wall, cpu, peak)


def ours(source: Path, folder: Path, workers: int) -> tuple[Cost, set[str]]:
    """`yanmo curate` on `source`: its cost and the raw ids of what it keeps."""
    store = folder / f"store-{source.stem}-{workers}"
    command = [sys.executable, "-m", "yanmo.curate", "--sources", str(source), "--store", str(store)]
    command += ["--workers", str(workers), "--label-fields", "id", "--overlap-characters", "0"]
    command += ["--metrics-port", "-1"]
    cost = measure(command, folder / "ours.log")
    kept = set()
    for path in [
        *store.glob("cas/curate/*/*/[tv]*-of-*.parquet"),
        *store.glob("cas/eval*/*/*/test-*.parquet"),
    ]:
        labels = pq.read_table(path, columns=["labels"], partitioning=None)["labels"].to_pylist()
        kept |= {dict(pairs)["id"] for pairs in labels}
    return cost, kept


def datatrove(python: str, source: Path, folder: Path) -> tuple[Cost, set[str]]:
    """The same in datatrove, one task, one worker."""
    out = folder / "datatrove"
    (out / "in").mkdir(parents=True)
    (out / "in" / source.name).symlink_to(source)
    cost = measure([python, str(PEER), str(out / "in"), str(out / "out"), "1", "1"], folder / "datatrove.log")
    paths = (out / "out" / "kept").glob("*.parquet")
    return cost, {i for path in paths for i in pq.read_table(path, columns=["id"])["id"].to_pylist()}


def write_times(source: Path, path: Path, times: int) -> None:
    """Write `source` `times` over, each time with other characters."""
    lines = source.read_text(encoding="utf-8").splitlines()
    counts = Counter(c for line in lines for c in json.loads(line)["text"] if "\u4e00" <= c <= "\u9fa5")
    by_frequency = [c for c, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    with path.open("w", encoding="utf-8") as out:
        for number in range(times):
            table = _exchange(by_frequency, number)
            for line in lines:
                record = json.loads(line)
                record |= {"text": record["text"].translate(table), "id": f"{record['id']}-{number}"}
                out.write(json.dumps(record, ensure_ascii=False) + "\n")


def _exchange(by_frequency: list[str], number: int) -> dict[int, str]:
    """Each character becomes one about as frequent, so that filters see text of the same kind; none for 0."""
    generator, table = random.Random(number), {}
    for start in range(0, len(by_frequency) if number else 0, 64):
        block = by_frequency[start : start + 64]
        table |= dict(zip(map(ord, block), generator.sample(block, len(block)), strict=True))
    return table


def row(name: str, cost: Cost, documents: int, size: int) -> str:
    return (
        f"{name:28}{cost.wall:9.1f}{cost.cpu:9.1f}{documents / cost.cpu:12,.0f}{size / 1e6 / cost.cpu:10.2f}"
        f"{cost.peak_bytes / 1e6:10,.0f}"
    )


def main() -> None:
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--datatrove", default="", help="python of an environment with datatrove")
    command.add_argument(
        "--times", type=int, default=10, help="how many times the corpus the larger input is"
    )
    command.add_argument("--workers", type=int, default=2, help="processes of the last row")
    options = command.parse_args()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="yanmo-curate-") as name:
        folder = Path(name)
        small, large = folder / "small.jsonl", folder / "large.jsonl"
        with zstandard.open(CORPUS, "rb") as packed:
            small.write_bytes(packed.read())
        write_times(small, large, options.times)
        print(
            f"{'':28}{'wall s':>9}{'CPU s':>9}{'docs/CPU-s':>12}{'MB/CPU-s':>10}{'peak MB':>10}", flush=True
        )

        def show(name: str, cost: Cost, source: Path) -> Cost:
            documents = sum(1 for _ in source.open("rb"))
            print(row(name, cost, documents, source.stat().st_size), flush=True)
            return cost

        cost, kept = ours(small, folder, 1)
        show("yanmo, 1 worker", cost, small)
        if options.datatrove:
            theirs, their_kept = datatrove(options.datatrove, small, folder)
            show("datatrove, 1 worker", theirs, small)
            print(f"  yanmo is {theirs.cpu / cost.cpu:.1f} times datatrove per CPU second")
            print(f"  kept {len(kept):,} and {len(their_kept):,}, Jaccard {_jaccard(kept, their_kept):.4f}")
        one = show(f"yanmo, {options.times} times the text", ours(large, folder, 1)[0], large)
        two = show(f"  with {options.workers} workers", ours(large, folder, options.workers)[0], large)
        print(f"  {options.workers} workers are {one.wall / two.wall:.2f} times as fast as one, by wall time")
        print(f"  load of the machine at the end: {os.getloadavg()[0]:.1f}")


def _jaccard(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(len(one | other), 1)


if __name__ == "__main__":
    main()
