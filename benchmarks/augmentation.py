"""The table of docs/augmentation.md: each augmentation against the same number of plain epochs, paired.

    python benchmarks/augmentation.py --store runs/augmentation --seeds 5 --out runs/augmentation/runs.jsonl

needs a store with curated documents (`yanmo curate --sources corpus/small.jsonl.zst --store ...`). For each
seed a small text is drawn (equally many characters of each genre) and a tokenizer made from it; each method
then makes a training text of the same number of characters and epochs, and a tiny model learns from it with
the same seed and number of steps. The held-out figures are the validation split's, without
tags. One process, one thread; finished runs are read from --out, so that a stopped benchmark goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True, help="folder of a store with curated documents")
    parser.add_argument("--out", required=True, type=Path, help="file of finished runs, one JSON per line")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="to share the seeds out to two processes")
    parser.add_argument("--characters", type=int, default=12_000, help="characters of each genre")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rates", type=float, default=1.0, help="learning rates, times the recipe's")
    parser.add_argument(
        "--only", default="", help="run this method alone (to choose --rates by plain epochs)"
    )
    parser.add_argument("--table", action="store_true", help="only print the table of --out")
    arguments = parser.parse_args()
    if not arguments.table:
        _prepare_process()
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            run_seed(arguments, seed)
    print("\n".join(table(read_runs(arguments.out))))


def _prepare_process() -> None:
    """This process is rank 0 of 1, as torchrun would say."""
    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()})


def _free_port() -> str:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def run_seed(arguments: argparse.Namespace, seed: int) -> None:
    """All methods of one seed that are not in the file yet."""
    done = {(run["seed"], run["method"]) for run in read_runs(arguments.out)}
    todo = [name for name in METHODS if (seed, name) not in done and arguments.only in ("", name)]
    if not todo:
        return
    store = arguments.store
    size = arguments.characters
    small = balance(store, "", f"shi={size},ci={size},wen={size},fu={size}", seed)
    steps = 0
    tokenizer = ""
    for name in METHODS:
        augment, noise, share = METHODS[name]
        if tokenizer and name not in todo:
            continue
        quotas = f"*={100 * arguments.epochs}%"
        documents = balance(
            store, small, quotas, seed, "--max-repeats", str(arguments.epochs), "--augment", augment
        )
        cache = tokenize(store, documents, tokenizer)
        if not tokenizer:
            tokenizer = f"tokenizer/{cache.part('tokenizer').manifest.key}"
            steps = _steps(cache)
        if name in todo:
            began = _cpu_seconds()
            figures = train(store, cache, seed, round(steps * share), noise, arguments.rates)
            line = {
                "seed": seed,
                "method": name,
                "steps": round(steps * share),
                **figures,
                "cpu": _cpu_seconds() - began,
            }
            line |= {
                "characters": 4 * size,
                "epochs": arguments.epochs,
                "rates": arguments.rates,
                "commit": commit(),
            }
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            with arguments.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


BATCH_ROWS, CONTEXT = 16, 64


def _steps(cache: Any) -> int:
    """Steps of one pass over the whole (repeated) training text."""
    from yanmo.formats.packing_settings import Packing
    from yanmo.formats.token_cache import TokenCache
    from yanmo.train.data import Samples

    opened = TokenCache.open(cache)
    how = Packing(context=CONTEXT)
    samples = Samples(opened, packing=how, seed=0, tag_share=0.5, pad=opened.special.pad)
    return len(samples.plan(0)) // BATCH_ROWS


def _stage(store: str, stage: Any, steps: Any, argv: list[str]) -> Any:
    """Run a stage in this process and open its output."""
    from yanmo.stage.run import main as run_stage
    from yanmo.store.manifest import Reference
    from yanmo.store.opening import open_store
    from yanmo.store.output import open_reference

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.json"
        common = ["--store", store, "--metrics-port", "-1", "--pointer", "none", "--log-level", "error"]
        code = run_stage(stage, steps, [*argv, *common, "--reference-out", str(path)])
        if code:
            raise SystemExit(code)
        return open_reference(open_store(store), Reference.from_json(path.read_text(), str(path)))


def balance(store: str, documents: str, quotas: str, seed: int, *more: str) -> str:
    """Balance and return the output as `balance/<key>`."""
    from yanmo.balance import phases
    from yanmo.balance.config import STAGE

    argv = ["--quotas", quotas, "--seed", str(seed), *more]
    argv += ["--documents", documents] if documents else []
    output = _stage(store, STAGE, phases.STEPS, argv)
    return f"balance/{output.manifest.key}"


def tokenize(store: str, documents: str, tokenizer: str) -> Any:
    """The token cache, made with a small vocabulary of its own or with the tokenizer given."""
    from yanmo.tokenize.config import STAGE
    from yanmo.tokenize.work import STEPS

    argv = ["--documents", documents, "--vocab-size", "4096", "--workers", "1", "--judged", "0"]
    argv += ["--agreement-sentences", "0", "--tokenizer", tokenizer or "none"]
    return _stage(store, STAGE, STEPS, argv)


def train(store: str, cache: Any, seed: int, steps: int, noise: float, rates: float) -> dict[str, Any]:
    """Train a tiny model in this process; held-out bits per character and the last training loss."""
    from yanmo.train.config import TrainConfig
    from yanmo.train.job import WorkerJob
    from yanmo.train.worker import train_rank

    config = TrainConfig(
        store=store, steps=steps, seed=seed, token_noise=noise, batch_rows=BATCH_ROWS, context=CONTEXT,
        layers=2, width=96, heads=3, kv_heads=1, head_width=32, feed_forward=256, warmup_steps=20,
        ranks=1, threads=1, device="cpu", checkpoint_seconds=0, valid_characters=10_000,
        log_every=max(steps // 10, 1), log_level="error",
        muon_learning_rate=0.02 * rates, adam_learning_rate=0.01 * rates, head_learning_rate=0.01 * rates,
        norm_learning_rate=0.003 * rates,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        train_rank(WorkerJob(config, store, cache.reference, None, Path(folder)), 0)
        text = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    valid = [line["valid_bits_per_character"] for line in lines if "valid_bits_per_character" in line][-1]
    loss = [line["bits_per_character"] for line in lines if "bits_per_character" in line][-1]
    return {"valid": valid, "train": loss}


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


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


def commit() -> str:
    """The short hash of the code that ran; `?` outside of a checkout."""
    command = ["git", "-C", os.path.dirname(__file__), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "?"


if __name__ == "__main__":
    main()
