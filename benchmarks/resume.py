"""Kills trainings with SIGKILL at random moments and compares every loss and sample with undisturbed ones.

    python benchmarks/resume.py --kills 100 --list kills.jsonl

For each setting (ranks, ZeRO stage, precision, accumulation) one training runs undisturbed. Then the same
training is started, killed after a time drawn uniformly over the wall time of the last undisturbed one,
started again from what the kill left on disk, killed again, until it ends; then the next. One rank is killed
and the other a moment later, or both at once. A kill counts as inside a save when it left a half-written
checkpoint.

Compared, with ==: the loss of every step before and after each kill, the ids of the documents of every step
on every rank, and the bytes of the finished model.

Processes are forked from one that has imported everything: kills fall on training, not on imports. They run
the stage's own worker.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.util
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from yanmo.common.parent import end_with_parent
from yanmo.train.supervision.ranks import LOOPBACK_INTERFACE, environments, meeting_file

ROOT = Path(__file__).resolve().parent.parent
SETTINGS: list[dict[str, Any]] = [
    {"ranks": 1, "zero_stage": 1, "precision": "fp32", "optimizer": "muon"},
    {"ranks": 2, "zero_stage": 1, "precision": "bf16", "optimizer": "muon", "micro_batch": 2},
    {"ranks": 2, "zero_stage": 2, "precision": "fp32", "optimizer": "adamw", "token_noise": 0.1},
    {"ranks": 2, "zero_stage": 3, "precision": "bf16", "optimizer": "muon", "log_every": 3},
]
TRAINING = {"steps": 80, "checkpoint_steps": 2, "valid_every": 25, "start": "random"}
PRELOADED = ("torch._dynamo", "deepspeed.runtime.zero.muon.original_muon")
PRELOADED += tuple(f"yanmo.train.{name}" for name in ("worker", "loop", "models.decoders", "backends.plain"))


def small_store(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The tests' store with a token cache of 160 real documents, and the options of a tiny model."""
    path = ROOT / "tests" / "components" / "train" / "conftest.py"
    spec = importlib.util.spec_from_file_location("train_conftest", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make_store(folder), dict(module.TINY)


def train_rank(job_path: Path, variables: Mapping[str, str], trail: Path) -> None:
    """Never returns: one rank of a training, in a forked process."""
    end_with_parent()
    os.environ.update(variables, GLOO_SOCKET_IFNAME=LOOPBACK_INTERFACE)
    rank, ranks = int(variables["RANK"]), int(variables["WORLD_SIZE"])
    log = os.open(job_path.parent / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        from yanmo.train import worker
        from yanmo.train.job import WorkerJob

        record_samples(trail, rank, ranks)
        code = 0 if worker.train_rank(WorkerJob.read(job_path), rank).state == "done" else 2
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def record_samples(trail: Path, rank: int, ranks: int) -> None:
    """Append what this rank trains on, step by step: [step, first sample, digest of the documents' ids]."""
    from yanmo.train import loop

    one_step = loop.Loop._one_step

    def recorded(self: Any) -> None:
        first, rows = self._first_sample() + rank * self.options.rank_rows, self.options.rank_rows
        ids = ",".join(self.samples.document_ids(first, rows))
        one_step(self)
        line = [self.step, first, hashlib.sha256(ids.encode()).hexdigest()[:12]]
        with trail.with_suffix(f".{rank}").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    loop.Loop._one_step = recorded


@dataclasses.dataclass
class Training:
    """One setting's training in a folder of its own."""

    store: Path
    options: dict[str, Any]
    folder: Path

    def start(self) -> list[int]:
        """Fork its ranks; their process ids."""
        from yanmo.store.opening import open_store
        from yanmo.store.pointers import read_pointer
        from yanmo.train.config import TrainConfig
        from yanmo.train.job import WorkerJob

        self.folder.mkdir(parents=True, exist_ok=True)
        reference = read_pointer(open_store(str(self.store)), "dev", "tokenize")
        config = TrainConfig(**self.options, store=str(self.store))
        path = WorkerJob(config, str(self.store), reference, None, self.folder).write()
        (meeting, kept), pids = meeting_file(self.folder, config.ranks), []
        for variables in environments(config.ranks, None):
            pid = os.fork()
            if pid == 0:
                train_rank(path, {**variables, **meeting}, self.folder / "samples")
            pids.append(pid)
        for file in kept:
            os.close(file)
        return pids

    def losses(self) -> dict[int, str]:
        """Step -> everything in its line that does not depend on the clock, as text."""
        kept = ("loss", "grad_norm", "learning_rate", "tokens", "valid_bits_per_character")
        found: dict[int, str] = {}
        path = self.folder / "metrics.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []:
            if line.endswith("\n") and "monitor" not in (value := json.loads(line)):
                text = json.dumps({k: value[k] for k in kept if k in value})
                found[value["step"]] = found.get(value["step"], "") + text
        return found

    def samples(self) -> dict[tuple[int, int], list[Any]]:
        """(rank, step) -> what was trained on."""
        found: dict[tuple[int, int], list[Any]] = {}
        for path in self.folder.glob("samples.*"):
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.endswith("\n"):
                    step, *rest = json.loads(line)
                    found[int(path.suffix[1:]), step] = rest
        return found

    def model(self) -> str:
        """Digest of the finished weights."""
        return hashlib.sha256((self.folder / "export" / "model.safetensors").read_bytes()).hexdigest()

    def half_written(self) -> bool:
        """Whether a checkpoint is there under its temporary name."""
        return any((self.folder / "checkpoints").glob(".tmp-*"))

    def newest(self) -> int:
        """Step of the newest whole checkpoint; 0 for none."""
        from yanmo.train.checkpoints import checkpoint

        found = checkpoint.newest(self.folder / "checkpoints")
        return checkpoint.step_of(found) if found else 0


def wait(pids: list[int], seconds: float) -> list[int]:
    """Exit statuses once all have ended; [] when the time is over before that."""
    end, left, statuses = time.monotonic() + seconds, list(pids), list[int]()
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.remove(pid)
                statuses.append(status)
        if left and time.monotonic() >= end:
            return []
        time.sleep(0.002)
    return statuses


def kill(pids: list[int], draw: random.Random) -> str:
    """Kill one rank and, a moment later, the rest; or all at once. Says which."""
    order = draw.sample(pids, len(pids))
    together = draw.random() < 0.5
    for i, pid in enumerate(order):
        if i and not together:
            time.sleep(draw.uniform(0, 0.3))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        with suppress(ChildProcessError):  # it had ended by itself: its peer was gone
            os.waitpid(pid, 0)
    return "all at once" if together else f"rank {pids.index(order[0])} first"


def compare(one: Training, whole: Training) -> list[str]:
    """What differs from the undisturbed training, so far."""
    differing = []
    losses, expected = one.losses(), whole.losses()
    for step, text in losses.items():
        # A validation follows its step's line; a kill may fall between them.
        if text != expected[step] and not expected[step].startswith(text):
            differing.append(f"step {step}: {text} != {expected[step]}")
    wanted = whole.samples()
    differing += [f"samples of {at}" for at, rest in one.samples().items() if rest != wanted[at]]
    return differing


def run(setting: dict[str, Any], store: Path, tiny: dict[str, Any], work: Path, kills: int, seed: int) -> Any:
    """Kill one setting's training so many times; yields one record per kill."""
    options = {**tiny, **TRAINING, **setting}
    whole = Training(store, options, work / "whole")
    began = time.monotonic()
    statuses = wait(whole.start(), 1200)
    wall = time.monotonic() - began
    assert statuses and not any(statuses), (whole.folder / "rank-0.log").read_text()
    draw, number, begun_at = random.Random(seed), 0, 0
    one: Training | None = None
    while number < kills or one:
        if one is None:
            one, begun_at = Training(store, options, work / f"killed-{number}"), number
        began, moment = time.monotonic(), draw.uniform(0, wall)
        pids = one.start()
        statuses = wait(pids, moment if number < kills else 1200)
        if statuses:
            if begun_at == number:  # not killed once: what it takes now, on a machine whose load changes
                wall = time.monotonic() - began
            assert not any(statuses), (one.folder / "rank-0.log").read_text()
            problems = compare(one, whole)
            if one.model() != whole.model():
                problems.append("the finished model differs")
            assert set(one.losses()) == set(whole.losses())
            yield {"finished": True, **setting, "kills_before": number - begun_at, "differing": problems}
            shutil.rmtree(one.folder)
            one = None
            continue
        how = kill(pids, draw)
        number += 1
        losses = one.losses()
        step = max(losses, default=0)
        trained = {f"rank {r}": rest for (r, s), rest in one.samples().items() if s == step}
        yield {
            "kill": number,
            **setting,
            "seconds": round(time.monotonic() - began, 3),
            "how": how,
            "inside_save": one.half_written(),
            "step": step,
            "line": losses.get(step, ""),
            "samples": trained,
            "resumes_at": one.newest(),
            "differing": compare(one, whole),
        }
    shutil.rmtree(whole.folder)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--kills", type=int, default=100, help="in all, over the four settings")
    arguments.add_argument("--list", type=Path, help="write one JSON line per kill to this file")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    os.environ.update(MKL_CBWR="AUTO,STRICT", OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    from yanmo.train.backends.zero import import_deepspeed

    import_deepspeed("cpu")
    for name in PRELOADED:
        importlib.import_module(name)

    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        store, tiny = small_store(Path(folder) / "store")
        for i, setting in enumerate(SETTINGS):
            kills = given.kills // len(SETTINGS) + (i < given.kills % len(SETTINGS))
            work = Path(folder) / f"setting-{i}"
            for record in run(setting, store, tiny, work, kills, given.seed + i):
                counts["differing"] += bool(record["differing"])
                counts["finished"] += "finished" in record
                counts["kills"] += "kill" in record
                counts["inside"] += record.get("inside_save", False)
                print(json.dumps(record, ensure_ascii=False), flush=True)
                if given.list:
                    with given.list.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(record, ensure_ascii=False) + "\n")
    print(
        f"{counts['kills']} kills, {counts['inside']} of them inside a save; {counts['finished']} trainings "
        f"finished; {counts['differing']} differ in a loss, a sample or the model"
    )
    sys.exit(1 if counts["differing"] else 0)


if __name__ == "__main__":
    main()
