"""The sweeps of docs/advice.md: dropout, weight decay, epochs, batch and learning rates, by corpus and size.

    python benchmarks/advice.py prepare --store runs/advice
    python benchmarks/advice.py measure --store runs/advice --jobs 2
    python benchmarks/advice.py tables

`prepare` makes three token caches from the bundled texts: `verse` (small.jsonl.zst, balanced), `modern`
(modern.jsonl.zst, whole sources held out) and `little` (25,000 characters of each genre of `verse`).
`measure` trains with one thread each what is not in benchmarks/results/advice.json yet, so that a stopped
command goes on. `tables` prints the tables; those of docs/advice.md are compared with them by a test.

All trainings of a sweep read equally many tokens, but for those over several epochs. What is compared is bits
per character on the validation split, mean of the genres, at the end; after ± half the range of the seeds, as
two carry no interval.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from optimizations import Cache, trained

from yanmo.common.made_by import made_by

RESULTS = Path(__file__).parent / "results/advice.json"
CORPUS = Path(__file__).parents[1] / "corpus"
PREPARED: dict[str, tuple[str, ...]] = {
    "verse": ("curate --sources=bundled", "balance", "tokenize"),
    "modern": (f"curate --sources={CORPUS}/modern.jsonl.zst --split-by=source", "balance", "tokenize"),
    "little": (
        "curate --sources=bundled",
        "balance --quotas=shi=25000,ci=25000,wen=25000,fu=25000",
        "tokenize",
    ),
}
"""Channel -> the stages that make its token cache."""
BASE = (
    *("--size=tiny", "--ranks=1", "--threads=1", "--backend=torch", "--precision=fp32"),
    *("--monitor=off", "--checkpoint-seconds=0", "--valid-points=0"),
)
RATES = {"muon": 0.02, "adam": 0.01, "head": 0.01}
"""Learning rates of `tiny`; that of the norm weights stays."""
WIDER = ("--layers=6", "--width=320", "--heads=5", "--feed-forward=896")
"""About four times the computation of `tiny` in the layers."""


@dataclass(frozen=True)
class Setting:
    """One training of a sweep, but for its seed."""

    row: str
    column: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """One table: settings on one corpus."""

    name: str
    channel: str
    seeds: int
    settings: tuple[Setting, ...]


def _epochs() -> Iterator[Setting]:
    """`little` makes 1,574 rows of 64 tokens; a step reads 32."""
    for epochs in (1, 2, 4):
        steps = f"--steps={epochs * 49}"
        yield Setting(f"{epochs}", "defaults", (steps,))
        yield Setting(f"{epochs}", "dropout 0.1", (steps, "--dropout=0.1"))
        yield Setting(f"{epochs}", "weight decay 0.1", (steps, "--weight-decay=0.1"))
        yield Setting(f"{epochs}", "rates x 0.25", (steps, *_rates(0.25)))


def _rates(factor: float) -> tuple[str, ...]:
    return tuple(f"--{name}-learning-rate={factor * rate:g}" for name, rate in RATES.items())


def _batches(tokens: int = 204_800) -> Iterator[Setting]:
    for rows in (16, 32, 64):
        for factor in (0.5, 1.0, 2.0):
            options = (f"--batch-rows={rows}", f"--steps={tokens // (64 * rows)}", *_rates(factor))
            yield Setting(f"{rows}", f"{factor:g}", options)


def _of_wider(tokens: int = 102_400) -> Iterator[Setting]:
    for factor in (0.5, 1.0, 2.0):
        yield Setting("32", f"{factor:g}", (*WIDER, f"--steps={tokens // 2048}", *_rates(factor)))


SWEEPS = (
    Sweep("verse", "verse", 1, tuple(_batches())),
    Sweep("modern", "modern", 1, tuple(_batches())),
    Sweep("epochs", "little", 2, tuple(_epochs())),
    Sweep("wider", "verse", 1, tuple(_of_wider())),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("prepare", "measure", "tables"))
    parser.add_argument("--store", default="runs/advice", help="folder of a store for this alone")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, of one thread each")
    parser.add_argument("--only", nargs="*", help=f"sweeps: {', '.join(s.name for s in SWEEPS)}")
    given = parser.parse_args()
    if given.what == "prepare":
        prepare(given.store)
    if given.what == "measure":
        measure(given.store, given.jobs, given.only)
    if given.what == "tables":
        print("\n\n".join("\n".join(table(sweep)) for sweep in SWEEPS))


def prepare(store: str) -> None:
    """The token caches of all channels."""
    for channel, stages in PREPARED.items():
        for line in stages:
            stage, *options = line.split()
            command = [sys.executable, "-m", f"yanmo.{stage}", f"--store={store}", f"--channel={channel}"]
            subprocess.run([*command, "--metrics-port=-1", *options], check=True)


def known() -> dict[str, dict[str, object]]:
    """The results so far: sweep/row/column/seed -> what it reached."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def measure(store: str, jobs: int, only: Sequence[str] | None) -> None:
    """Train what has no result yet; each is written down as soon as it has ended."""
    caches = {sweep.channel: Cache.of(Path(store), sweep.channel) for sweep in SWEEPS}
    made, lock, done = made_by(), threading.Lock(), known()

    def one(sweep: Sweep, setting: Setting, seed: int) -> None:
        name = name_of(sweep, setting, seed)
        found = trained(caches[sweep.channel], [*BASE, *setting.options, f"--seed={seed}"])
        with lock:
            merged = known() | {name: {"bits": found["bits"], "options": setting.options, "made_by": made}}
            RESULTS.write_text(json.dumps(merged, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(name, f"{found['bits']:.3f}", flush=True)

    todo = [
        (sweep, setting, seed)
        for sweep in SWEEPS
        if not only or sweep.name in only
        for seed in range(1, sweep.seeds + 1)
        for setting in sweep.settings
        if name_of(sweep, setting, seed) not in done
    ]
    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(lambda job: one(*job), todo):
            pass


def name_of(sweep: Sweep, setting: Setting, seed: int) -> str:
    """Of one training, in the results."""
    return f"{sweep.name}/{setting.row}/{setting.column}/{seed}"


def table(sweep: Sweep) -> list[str]:
    """Rows of Markdown: a setting's mean over the seeds, and half the range between them."""
    found = known()
    rows = list(dict.fromkeys(setting.row for setting in sweep.settings))
    columns = list(dict.fromkeys(setting.column for setting in sweep.settings))
    lines = [f"| {sweep.name} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        cells = []
        for setting in (s for s in sweep.settings if s.row == row):
            names = [name_of(sweep, setting, seed) for seed in range(1, sweep.seeds + 1)]
            bits = [float(str(found[name]["bits"])) for name in names if name in found]
            cells.append(_cell(bits))
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _cell(bits: Sequence[float]) -> str:
    if not bits:
        return ""
    half = (max(bits) - min(bits)) / 2
    return f"{sum(bits) / len(bits):.3f}" + (f" ±{half:.3f}" if len(bits) > 1 else "")


if __name__ == "__main__":
    main()
