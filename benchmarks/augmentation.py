"""A table of benchmarks/NOTES.md: each augmentation against the same number of plain epochs, paired.

    python benchmarks/augmentation.py --store runs/augmentation --seeds 5 --out runs/augmentation/runs.jsonl

needs a store with curated documents (`yanmo curate --sources corpus/small.jsonl.zst --store ...`). For each
seed a small text is drawn (equally many characters of each genre) and a tokenizer made from it; each method
then makes a training text of the same number of characters and epochs, and a tiny model learns from it with
the same seed and number of steps. The held-out figures are the validation split's, without tags. Each step is
the stage's own command; finished runs are read from --out, so that a stopped benchmark goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from yanmo.common.made_by import made_by
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

GENRES = ("诗", "词", "文", "赋", "mean")
METHODS: dict[str, tuple[str, float, float]] = {
    "plain epochs": ("", 0.0, 1.0),
    "synonym 20 %": ("*:synonym=0.2", 0.0, 1.0),
    "reorder 50 %": ("*:reorder=0.5", 0.0, 1.0),
    "insert 10 %": ("wen:insert=0.1,fu:insert=0.1", 0.0, 1.0),
    "delete 5 %": ("wen:delete=0.05,fu:delete=0.05", 0.0, 1.0),
    "online tokens 5 %": ("", 0.05, 1.0),
    "plain, a third of the steps": ("", 0.0, 1 / 3),
}
"""Method -> `balance --augment`, `train --token-noise`, share of the steps. Verse is left alone by insert and
delete. The last row asks whether stopping early does as well."""
STUDENT_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Two-sided 95 % quantile by number of seeds."""


MODEL = (
    *("--layers=2", "--width=96", "--heads=3", "--kv-heads=1", "--head-width=32", "--feed-forward=256"),
    *("--batch-rows=16", "--context=64", "--warmup-steps=20", "--valid-characters=10000"),
    *("--ranks=1", "--threads=1", "--device=cpu", "--checkpoint-seconds=0"),
)
RATES = {"muon": 0.02, "adam": 0.01, "head": 0.01, "norm": 0.003}
"""The recipe's learning rates."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True, help="folder of a store with curated documents")
    parser.add_argument("--out", required=True, type=Path, help="file of finished runs, one JSON per line")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--characters", type=int, default=12_000, help="characters of each genre")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rates", type=float, default=1.0, help="learning rates, times the recipe's")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(given.seeds):
        run_seed(given, seed)
    print("\n".join(table(read_runs(given.out))))


def run_seed(given: argparse.Namespace, seed: int) -> None:
    """All methods of one seed that are not in the file yet."""
    done = {run["method"]: run for run in read_runs(given.out) if run["seed"] == seed}
    if len(done) == len(METHODS):
        return
    quotas = ",".join(f"{genre}={given.characters}" for genre in ("shi", "ci", "wen", "fu"))
    small = stage(given.store, "balance", f"--quotas={quotas}", f"--seed={seed}")
    tokenizer, steps = "none", 0
    for name, (augment, noise, share) in METHODS.items():  # plain epochs first: they set tokenizer and steps
        if name in done and tokenizer != "none":
            continue
        text = stage(given.store, "balance", f"--documents=balance/{small.manifest.key}", f"--seed={seed}",
                     f"--quotas=*={100 * given.epochs}%", f"--max-repeats={given.epochs}",
                     f"--augment={augment}")  # fmt: skip
        cache = stage(given.store, "tokenize", f"--documents=balance/{text.manifest.key}", "--judged=0",
                      "--vocab-size=4096", "--workers=1", "--agreement-sentences=0",
                      f"--tokenizer={tokenizer}")  # fmt: skip
        if tokenizer == "none":
            tokenizer = f"tokenizer/{cache.part('tokenizer').manifest.key}"
        length = f"--steps={round(steps * share)}" if steps else "--epochs=1"
        model = stage(given.store, "train", f"--token-cache=tokenize/{cache.manifest.key}",
                      f"--seed={seed}", length, f"--token-noise={noise}", *MODEL,
                      *(f"--{n}-learning-rate={r * given.rates}" for n, r in RATES.items()))  # fmt: skip
        lines = [json.loads(x) for x in model.path("metrics.jsonl").read_text("utf-8").splitlines()]
        steps = steps or max(line["step"] for line in lines)
        if name not in done:
            line = {"seed": seed, "method": name, **figures(lines), **made_by(), "epochs": given.epochs}
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def stage(store: str, name: str, *options: str) -> Output:
    """What a stage made of a store, or had made before."""
    command = [sys.executable, "-m", f"yanmo.{name}", f"--store={store}", "--channel=dev"]
    command += ["--pointer=benchmark", "--metrics-port=-1", "--log-level=error", *options]
    if done := subprocess.run(command).returncode:
        raise SystemExit(done)
    reference = read_pointer(open_store(store), "dev", "benchmark")
    assert reference is not None
    return open_reference(open_store(store), reference)


def figures(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Held-out bits per character, and the last training loss."""
    valid = [line["valid_bits_per_character"] for line in lines if "valid_bits_per_character" in line]
    return {"valid": valid[-1], "train": [line for line in lines if "loss" in line][-1]["bits_per_character"]}


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The finished runs."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(runs: list[dict[str, Any]]) -> list[str]:
    """Markdown: plain epochs in bits per character, then each method's paired difference to it."""
    by_method = {name: {r["seed"]: r for r in runs if r["method"] == name} for name in METHODS}
    plain = by_method["plain epochs"]
    lines = [
        "| method | " + " | ".join((*GENRES, "training", "seeds")) + " |",
        "|---" * (len(GENRES) + 3) + "|",
    ]
    for name, found in by_method.items():
        seeds = sorted(found.keys() & plain.keys())
        if len(seeds) < 2:
            continue
        cells = [_cell(name, [found[s]["valid"][g] for s in seeds], [plain[s]["valid"][g] for s in seeds])
                 for g in GENRES]  # fmt: skip
        loss = statistics.mean(found[s]["train"] for s in seeds)
        lines.append("| " + " | ".join([name, *cells, f"{loss:.3f}", str(len(seeds))]) + " |")
    return lines


def _cell(name: str, values: list[float], plain: list[float]) -> str:
    if name == "plain epochs":
        return f"{statistics.mean(values):.3f}"
    differences = [a - b for a, b in zip(values, plain, strict=True)]
    half = STUDENT_T[len(values)] * statistics.stdev(differences) / len(values) ** 0.5
    mean = statistics.mean(differences)
    text = f"{mean:+.3f} ± {half:.3f}"
    return f"**{text}**" if abs(mean) > half else text


if __name__ == "__main__":
    main()
