"""A model that goes on from yesterday's against a new one: equal steps, several seeds, the same test texts.

    python benchmarks/warm_start.py --folder /tmp/warm-start --seeds 3

--texts of each genre of the bundled corpus are curated and tokenized, and a model is trained on them. Then
--more come, as in the next night, with the same tokenizer and evaluation set; on all of them --seeds new
models are trained, and as many that go on from the first one with each of --peaks
(`train --continued-peak`), each by `--steps` (benchmarks/seed_noise.py, which scores the test texts). Of a
model that goes on, the seed decides the order of the texts alone.

Printed is a table in Markdown: bits per character of the test texts, mean over genres, by seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import zstandard

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "corpus/small.jsonl.zst"
CHANNEL = "main"
RECIPE = (
    "--layers 2 --width 96 --heads 3 --head-width 32 --feed-forward 256 --batch-rows 8 --context 128 "
    "--warmup-steps 10 --ranks 1 --threads 1 --device cpu"
)


class Bench:
    """A folder with raw text, a store and the tables of scores."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.raw, self.store = folder, folder / "raw", folder / "store"
        self.raw.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, texts: int, after: int) -> None:
        """A source file with so many texts of each genre, after the first ones."""
        seen: Counter[str] = Counter()
        with zstandard.open(CORPUS, "rb") as file, (self.raw / name).open("wb") as out:
            for line in file.read().splitlines(keepends=True):
                genre = json.loads(line)["genre"]
                seen[genre] += 1
                if after < seen[genre] <= after + texts:
                    out.write(line)

    def stage(self, name: str, *words: str) -> str:
        """Run a stage; `stage/KEY` of its output."""
        command = [sys.executable, "-m", "yanmo.cli", name, f"--store={self.store}", f"--channel={CHANNEL}"]
        _run([*command, "--metrics-port=-1", *words])
        pointer = self.store / f"pointers/{CHANNEL}/{name}.json"
        return f"{name}/{json.loads(pointer.read_text(encoding='utf-8'))['key']}"

    def cache(self, *words: str) -> str:
        """The token cache of all raw text."""
        self.stage("curate", f"--sources={self.raw}")
        self.stage("balance")
        return self.stage("tokenize", *words)

    def scored(self, name: str, seeds: int, *recipe: str) -> list[float]:
        """Bits per character of the test texts under the model of each seed, mean over genres."""
        table = self.folder / f"{name}.parquet"
        command = [sys.executable, str(ROOT / "benchmarks/seed_noise.py"), f"--out={table}"]
        whole = [f"--store={self.store}", f"--channel={CHANNEL}", *recipe, *RECIPE.split()]
        _run([*command, f"--seeds={seeds}", "--", *whole])
        return [_mean_bits(table, f"seed {number}") for number in range(seeds)]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stderr[-3000:]}")


def _mean_bits(path: Path, column: str) -> float:
    table = pq.read_table(path, columns=["genre", "characters", column])
    sums = table.group_by("genre").aggregate([("characters", "sum"), (column, "sum")])
    return float(pc.mean(pc.divide(sums[f"{column}_sum"], sums["characters_sum"])).as_py())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="what is there already is not made again")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--peaks", type=float, nargs="+", default=[1.0, 0.5, 0.25])
    parser.add_argument("--texts", type=int, default=1200, help="of each genre, for the first model")
    parser.add_argument("--more", type=int, default=400, help="of each genre, that come then")
    parser.add_argument("--first-steps", type=int, default=100, help="of the first model")
    parser.add_argument("--steps", type=int, default=100, help="of each model that is compared")
    options = parser.parse_args()
    bench = Bench(options.folder.absolute())
    bench.write("first.jsonl", options.texts, 0)
    cache = bench.cache()
    tokenizer = json.loads((bench.store / f"pointers/{CHANNEL}/tokenizer.json").read_text(encoding="utf-8"))
    first = bench.stage("train", f"--token-cache={cache}", f"--steps={options.first_steps}", *RECIPE.split())
    bench.write("second.jsonl", options.more, options.texts)
    grown = bench.cache(f"--tokenizer=tokenizer/{tokenizer['key']}")
    equal = (f"--token-cache={grown}", f"--steps={options.steps}")
    columns = {"new": bench.scored("new", options.seeds, *equal, "--model=none")}
    for peak in options.peaks:
        goes_on = (*equal, f"--model={first}", f"--continued-peak={peak}")
        columns[f"peak {peak:g}"] = bench.scored(f"peak-{peak:g}", options.seeds, *goes_on)
    print("| seed | " + " | ".join(columns) + " |\n|---" + "|---:" * len(columns) + "|")
    for number, row in enumerate(zip(*columns.values(), strict=True), 1):
        _print_row(str(number), row)
    _print_row("mean", [statistics.mean(column) for column in columns.values()])
    if options.seeds > 1:
        _print_row("standard deviation", [statistics.stdev(column) for column in columns.values()])


def _print_row(name: str, figures: Iterable[float]) -> None:
    print(f"| {name} | " + " | ".join(f"{figure:.3f}" for figure in figures) + " |")


if __name__ == "__main__":
    main()
