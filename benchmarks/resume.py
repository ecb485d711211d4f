"""Kills trainings with SIGKILL at random moments and compares every loss and sample with undisturbed ones.

    python benchmarks/resume.py --kills 100 --list kills.jsonl

For each setting (ranks, ZeRO stage, precision, accumulation) one training runs undisturbed, as `yanmo train`.
Then the same training is started, killed after a time drawn uniformly over that of the undisturbed one, from
its first step on, started again, killed again, until it ends; then the next. One rank is killed, or all of
its processes at once. A kill counts as inside a save when it left a half-written checkpoint.

Compared, with ==: the loss of every step before and after each kill, the ids of the documents of every step
on every rank, and the bytes of the finished model.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1] / "tests/components" / name) for name in ("train", "")
]

from conftest import TINY, make_store  # noqa: E402  # the tests' store: a token cache of 160 real documents
from faults import install  # noqa: E402
from training_runs import command, environment  # noqa: E402

SETTINGS: list[dict[str, Any]] = [
    {"ranks": 1, "zero_stage": 1, "precision": "fp32", "optimizer": "muon"},
    {"ranks": 2, "zero_stage": 1, "precision": "bf16", "optimizer": "muon", "micro_batch": 2},
    {"ranks": 2, "zero_stage": 2, "precision": "fp32", "optimizer": "adamw", "token_noise": 0.1},
    {"ranks": 2, "zero_stage": 3, "precision": "bf16", "optimizer": "muon", "log_every": 3},
]
TRAINING = {"steps": 80, "checkpoint_steps": 2, "valid_every": 25, "start": "random", "backend": "deepspeed"}
KEPT = ("loss", "grad_norm", "learning_rate", "tokens", "valid_bits_per_character")
"""Of a line of metrics, what does not depend on the clock."""


class Training:
    """One setting's training in a store of its own, with a record of what each rank trains on."""

    def __init__(self, folder: Path, store: Path, options: dict[str, Any]) -> None:
        self.store = shutil.copytree(store, folder / "store")
        self.site = install(folder / "site", f"faults.record_rows({str(folder / 'samples')!r})")
        self.folder, self.options = folder, options

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command(self.store, self.options),
                env=environment(self.site),
                stderr=log,
                start_new_session=True,
            )

    def lines(self) -> list[str]:
        """Its metrics so far, whole lines."""
        for path in self.store.glob("*/train/*/**/metrics.jsonl"):
            with contextlib.suppress(FileNotFoundError):  # it ends meanwhile
                text = path.read_text(encoding="utf-8")
                return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return []

    def losses(self) -> dict[int, str]:
        """Step -> what its lines say."""
        found: dict[int, str] = {}
        for value in map(json.loads, self.lines()):
            if "monitor" not in value:
                text = json.dumps({k: value[k] for k in KEPT if k in value})
                found[value["step"]] = found.get(value["step"], "") + text
        return found

    def samples(self) -> dict[str, str]:
        """Rank and first sample -> the documents of the rows there, whenever they were trained on."""
        found: dict[str, str] = {}
        for path in self.folder.glob("samples.*"):
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.endswith("\n"):
                    first, count, documents = json.loads(line)
                    digest = hashlib.sha256(",".join(documents).encode()).hexdigest()[:12]
                    found[f"{path.suffix} {first} {count}"] = digest
        return found

    def model(self) -> str:
        """Digest of the finished weights."""
        (path,) = self.store.glob("cas/train/*/*/model.safetensors")
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def half_written(self) -> bool:
        """Whether a checkpoint is there under its temporary name."""
        return any(self.store.glob("runs/train/*/checkpoints/.tmp-*"))

    def said(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-3000:]


def kill(process: subprocess.Popen[bytes], draw: random.Random) -> str:
    """Kill one rank, after which the training ends by itself, or all at once. Says which."""
    ranks = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "yanmo.train.worker" in " ".join(child.cmdline())
    ]
    how = "a rank" if ranks and draw.random() < 0.5 else "all at once"
    if how == "a rank":
        draw.choice(ranks).kill()
        process.wait(120)
    for each in (process, *ranks):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            each.kill()
    process.wait()
    psutil.wait_procs(ranks, 60)
    return how


def compare(one: Training, whole: Training) -> list[str]:
    """What differs from the undisturbed training, so far."""
    losses, expected, wanted = one.losses(), whole.losses(), whole.samples()
    # A validation follows its step's line; a kill may fall between them.
    found = [f"step {n}: {x} != {expected[n]}" for n, x in losses.items() if not expected[n].startswith(x)]
    return found + [f"samples of {at}" for at, of in one.samples().items() if of != wanted.get(at)]


def run(setting: dict[str, Any], store: Path, work: Path, kills: int, seed: int) -> Iterator[dict[str, Any]]:
    """Kill one setting's training so many times; a record for each kill and each end."""
    options = {**TINY, **TRAINING, **setting}
    whole = Training(work / "whole", store, options)
    process, began = whole.start(), 0.0
    while process.poll() is None:
        began = began or (time.monotonic() if whole.lines() else 0.0)
        time.sleep(0.01)
    wall = time.monotonic() - began
    assert process.returncode == 0, whole.said()
    draw, number = random.Random(seed), 0
    for turn in range(kills):
        if number == kills:
            break
        one, first = Training(work / f"killed-{turn}", store, options), number
        while (process := one.start()).poll() is None or process.returncode:
            had = len(one.lines()) if number < kills else 10**9
            while process.poll() is None and len(one.lines()) <= had:
                time.sleep(0.01)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0, wall))
            if process.returncode == 0:
                break
            assert process.returncode is None, one.said()
            how, number = kill(process, draw), number + 1
            yield {
                "kill": number,
                **setting,
                "how": how,
                "inside_save": one.half_written(),
                "step": max(one.losses(), default=0),
                "differing": compare(one, whole),
            }
        problems = compare(one, whole)
        problems += ["the finished model differs"] if one.model() != whole.model() else []
        problems += ["steps are missing"] if one.losses().keys() != whole.losses().keys() else []
        yield {"finished": True, **setting, "kills_before": number - first, "differing": problems}
        shutil.rmtree(one.folder)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--kills", type=int, default=100, help="in all, over the four settings")
    arguments.add_argument("--list", type=Path, help="write one JSON line per kill to this file")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(Path(folder) / "store")
        for i, setting in enumerate(SETTINGS):
            kills = given.kills // len(SETTINGS) + (i < given.kills % len(SETTINGS))
            for record in run(setting, store, Path(folder) / f"setting-{i}", kills, given.seed + i):
                for name in ("kill", "finished", "inside_save", "differing"):
                    counts[name] += bool(record.get(name))
                line = json.dumps(record, ensure_ascii=False)
                print(line, flush=True)
                if given.list:
                    with given.list.open("a", encoding="utf-8") as file:
                        file.write(f"{line}\n")
    print(
        f"{counts['kill']} kills, {counts['inside_save']} of them inside a save; {counts['finished']} "
        f"trainings finished; {counts['differing']} differ in a loss, a sample or the model"
    )
    sys.exit(1 if counts["differing"] else 0)


if __name__ == "__main__":
    main()
