"""Trains in runs of KFP: undisturbed, with pods taken away, with the stage killed; the models must be equal.

    python tests/cluster/killed_runs.py --deletes 20 --kills 5         # KUBECONFIG, KFP_ENDPOINT: README.md

What is done to pods, and in which stores: disturbed.py. The form of all runs is the same, so their model has
one key. Argo tries a task again three times, so a store has three disturbances at most, but for kills: what
Argo does not try again (in KFP 2.17 kills and some evictions) is submitted again, in the same store. A run is
terminated once its model is there. Prints a line for each, at the end whether the digests are equal; ends
with 1 where they are not. Not a pytest module: it takes half an hour on a small node.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path

from disturbed import Disturbances, Training, parser
from real_cluster import TINY

DATA, CPU = ("curate", "balance", "tokenize"), "300m"
"""These find what they would make, so that little will do on a small node."""
MOST_RETRIES = 3
"""`set_retry` in resources.py."""


class Runs(Disturbances):
    """Runs with one form, in stores that have the same data."""

    def __init__(self, given: argparse.Namespace) -> None:
        from yanmo_pipelines.compile import compile_pipeline, load_pipeline
        from yanmo_pipelines.resources import COLUMNS, SMALL, row_of

        super().__init__(given)
        given.folder.mkdir(parents=True, exist_ok=True)
        self.pipeline = given.folder / "language_model.yaml"
        column = {**COLUMNS[SMALL], **{stage: replace(row_of(SMALL, stage), cpu=CPU) for stage in DATA}}
        compile_pipeline(load_pipeline("language_model", column), self.pipeline, self.cluster.image_prefix)

    def train(self, name: str, option: str, count: int) -> None:
        """One model, with so many disturbances in as many runs as it takes."""
        store, done = self.store(name), 0
        while True:
            run_id = self.start(store, f"{name} {done + 1}")
            done += self.disturb(self.training(run_id), option, count - done)
            if self.state_at_end(run_id) == "SUCCEEDED":
                break
            if not count:
                raise RuntimeError(f"{name}: the training of run {run_id} failed")
            print(f"{run_id[:8]}: failed; the same is submitted again", flush=True)
        self.disturbed[name] = done
        said = self.cluster.log(run_id, "train")
        self.cluster.terminate(run_id)
        self.compare(name, re.findall(r"train/[0-9a-f]{12}", said)[-1], store)

    def start(self, store: str, name: str) -> str:
        form = {"channel": self.label, "store": store, "options": TINY}
        of_train = {"train_steps": str(self.given.steps), "train_seed": "7", "training_pod_cpu": "500m"}
        return self.cluster.start(self.pipeline, {**form, **of_train}, f"{self.label} {name}")

    def training(self, run_id: str) -> Training:
        return Training(
            run_id[:8],
            "main",
            lambda: self.cluster.pods(run_id, "train"),
            lambda: bool(self.state(run_id)),
        )

    def state(self, run_id: str) -> str:
        """Of the training; FAILED also where another task failed."""
        of_run = self.cluster.run(run_id).get("state", "")
        of_task = self.cluster.states(run_id).get("train", "")
        return of_task if of_task == "SUCCEEDED" else "FAILED" if of_run in ("FAILED", "CANCELED") else ""

    def state_at_end(self, run_id: str) -> str:
        return str(self.cluster.wait(lambda: self.state(run_id), f"training of run {run_id}"))


def main() -> int:
    options = parser(__doc__, steps=300)
    options.add_argument("--folder", type=Path, default=Path("build"), help="where the pipeline is compiled")
    runs = Runs(options.parse_args())
    for name, (option, count) in runs.batches(MOST_RETRIES).items():
        runs.train(name, option, count)
    return runs.verdict()


if __name__ == "__main__":
    sys.exit(main())
