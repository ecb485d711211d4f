"""One row of docs/recipe.md: train with some options, print what it cost and what it reached.

    python benchmarks/train_recipe.py --store runs/demo --channel demo --name batch24 -- --batch-rows=24

needs a token cache in the channel (`make demo` leaves one). Options after `--` are those of `yanmo train`.
The validation split decides, without genre tags; CPU seconds are those of the steps, over all ranks, so that
rows made on a busy machine can be compared. The model is committed, but no pointer is moved.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from yanmo.store.manifest import Reference
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference

HEADER = "| run | commit | steps | tokens | CPU s | tokens per CPU s | train | {genres} | mean |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True, help="folder or URI of the store")
    parser.add_argument("--channel", default="dev", help="channel whose token cache is trained on")
    parser.add_argument("--name", default="defaults", help="what the row is called")
    parser.add_argument("options", nargs="*", help="after `--`: options of `yanmo train`")
    arguments = parser.parse_args()
    output = train(arguments.store, arguments.channel, arguments.options)
    lines = [json.loads(x) for x in output.path("metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    print("\n".join(row(arguments.name, lines)))


def train(store: str, channel: str, options: list[str]) -> Output:
    """Run the stage and open what it made (or had made before)."""
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder) / "model.json"
        command = [sys.executable, "-m", "yanmo.train", "--store", store, "--channel", channel]
        command += ["--pointer", "none", "--metrics-port", "-1", "--reference-out", str(reference), *options]
        done = subprocess.run(command, check=False)
        if done.returncode:
            sys.exit(done.returncode)
        return open_reference(open_store(store), Reference.from_json(reference.read_text(), str(reference)))


def row(name: str, lines: list[dict[str, Any]]) -> list[str]:
    """The table's header and the run's row, in Markdown."""
    steps = [x for x in lines if "loss" in x]
    valid = [x["valid_bits_per_character"] for x in lines if "valid_bits_per_character" in x][-1]
    genres = [g for g in valid if g != "mean"]
    last = steps[-1]
    cells = [
        name,
        commit(),
        str(last["step"]),
        f"{last['tokens'] / 1e6:.2f} M",
        f"{last['cpu_seconds']:.0f}",
        f"{last['tokens'] / last['cpu_seconds']:.0f}",
        f"{sum(x['bits_per_character'] for x in steps[-3:]) / len(steps[-3:]):.3f}",
        *(f"{valid[g]:.3f}" for g in genres),
        f"{valid['mean']:.3f}",
    ]
    header = HEADER.format(genres=" | ".join(genres))
    return [header, "|---" * len(cells) + "|", "| " + " | ".join(cells) + " |"]


def commit() -> str:
    """The short hash of the code that ran; `?` outside of a checkout."""
    command = ["git", "-C", os.path.dirname(__file__), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "?"


if __name__ == "__main__":
    main()
