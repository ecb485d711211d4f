"""Whole stages on the device, as a user starts them: evaluation, kill -9 and resume, out of memory.

Each run works in a copy of a prepared store, so that nothing of another run is found there.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from gpu_report import Measure, holds, within
from gpu_steps import furthest

from yanmo.options.fields import flag
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.backends.hardware import compile_problem

_SHAPE = {"layers": 4, "width": 256, "heads": 4, "kv_heads": 2, "head_width": 64, "feed_forward": 512}
_QUICK = {"layers": 2, "width": 32, "heads": 2, "kv_heads": 1, "head_width": 16, "feed_forward": 48}
_TESTS = Path(__file__).resolve().parent.parent / "tests" / "components" / "train"


class Ground:
    """A folder for copies of a prepared store, and how a stage is started in one."""

    def __init__(self, setting: Any, folder: Path, store: str) -> None:
        self._setting, self._folder, self._store = setting, folder, store

    def copy(self, name: str) -> Path:
        """A store of its own."""
        return Path(shutil.copytree(self._setting.prepared / self._store, self._folder / name))

    def command(self, stage: str, store: Path, **options: Any) -> list[str]:
        """The command line of a stage."""
        options = {"device": self._setting.device, "metrics_port": -1, **options}
        flags = [f"{flag(name)}={value}" for name, value in options.items()]
        return [sys.executable, "-m", f"yanmo.{stage}", f"--store={store}", *flags]


def output_of(store: Path, stage: str) -> Output:
    """What a stage committed."""
    opened = open_store(str(store))
    return open_reference(opened, read_pointer(opened, "dev", stage))


def _run(command: list[str], **changes: str) -> str:
    """What a stage said, once it has ended well.

    Raises:
        RuntimeError: it ended otherwise.
    """
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **changes}
    )
    print(done.stdout, flush=True)
    if done.returncode:
        raise RuntimeError(f"{command[2]} ended with {done.returncode}: {done.stdout[-400:]}")
    return done.stdout


def evaluation(setting: Any) -> Iterator[Measure]:
    """Bits and texts of one model, evaluated on the CPU and on the device."""
    number = 4 if setting.quick else 48
    with tempfile.TemporaryDirectory() as name:
        ground, found = Ground(setting, Path(name), "evaluation"), []
        for run, device in (("cpu", "cpu"), ("device", setting.device)):
            store = ground.copy(run)
            asked = {"documents": "none", "samples": number}
            _run(ground.command("evaluate", store, **{**asked, "device": device, "temperature": 1.0}))
            found.append(output_of(store, "evaluate"))
        yield from compared(*found)


def compared(here: Output, there: Output) -> Iterator[Measure]:
    """Two evaluations of one model."""
    bits = [_bits(output) for output in (here, there)]
    differ = max(
        abs(a - b)
        for column in bits[0]
        for a, b in zip(bits[0][column], bits[1][column], strict=True)
        if a == a or b == b  # no tag: NaN in both
    )
    yield within("bits of a document", differ, 2e-3, "fp32 sums in another order, kept to 4 digits")
    means = [
        json.loads(o.path("summary.json").read_text("utf-8"))["mean"]["bits_per_character"]
        for o in (here, there)
    ]
    yield within("mean bits per character", abs(means[0] - means[1]), 1e-4, "of all documents")
    texts = [_texts(output) for output in (here, there)]
    other = sum(a != b for a, b in zip(*texts, strict=True)) / max(len(texts[0]), 1)
    yield within(
        f"share of {len(texts[0])} sampled texts that differ",
        other,
        0.05,
        "equal random numbers; a text goes its own way where a draw falls within the last digits of a sum",
    )


def _bits(output: Output) -> dict[str, list[float]]:
    (path,) = output.paths("documents-*.parquet")  # the confirmation split has a table of its own
    rows = pq.read_table(path)
    return {c: [float("nan") if v is None else float(v) for v in rows[c].to_pylist()]
            for c in rows.column_names if "bits" in c}  # fmt: skip


def _texts(output: Output) -> list[str]:
    genres = json.loads(output.path("samples.json").read_text("utf-8"))["genres"]
    return [text["text"] for texts in genres.values() for text in texts]


def _training(setting: Any, **changes: Any) -> dict[str, Any]:
    shape = _QUICK if setting.quick else _SHAPE
    values = {**shape, "context": 64, "batch_rows": 16, "warmup_steps": 2, "log_every": 1, "ranks": 1}
    values |= {"valid_characters": 300, "checkpoint_seconds": 0, "optimizer": "adamw", "start": "random"}
    values |= {"compile": False}  # by itself it is on where a compiler is, at each of many starts
    return {**values, "adam_learning_rate": 1e-3, **changes}


def _losses(output: Output) -> list[float]:
    text = output.path("metrics.jsonl").read_text(encoding="utf-8")
    return [x["loss"] for x in map(json.loads, text.splitlines()) if "loss" in x]


def resume(setting: Any) -> Iterator[Measure]:
    """A training whose worker is killed twice with -9 beside two that nobody disturbed; in short, once.

    Flash attention's backward adds up in no fixed order: two undisturbed trainings differ, and a resumed one
    may differ as much. In fp32 with masked attention and layers that are not compiled they should be equal,
    with dropout too;
    the bf16 course is that of the defaults on a GPU, compiled where a compiler is.
    """
    steps, moments = (12, (4,)) if setting.quick else (40, (4, 36))
    settings = [("fp32", "deepspeed", False)]
    if not setting.quick:
        settings += [("bf16", "torch", setting.device == "cuda" and not compile_problem("cuda"))]
    for precision, backend, compiled in settings:
        asked = _training(setting, steps=steps, precision=precision, backend=backend, checkpoint_steps=3)
        asked |= {"dropout": 0.1 if precision == "fp32" else 0.0}  # the device's random numbers go on too
        asked |= {"compile": str(compiled).lower()}
        asked |= {"monitor": "full", "monitor_every": 7}
        with tempfile.TemporaryDirectory() as name:
            ground, courses = Ground(setting, Path(name), "store"), []
            for run in ("first", "second"):
                store = ground.copy(run)
                _run(ground.command("train", store, **asked))
                courses.append(_losses(output_of(store, "train")))
            store = ground.copy("killed")
            kills = [_killed(ground.command("train", store, **asked), store, at) for at in moments]
            _run(ground.command("train", store, **asked))
            killed = _losses(output_of(store, "train"))
        label = f"{precision}, {backend}{', compiled' if compiled else ''}"
        yield holds(
            f"{label}: kills",
            all(kills),
            f"{sum(kills)} of {len(kills)} fell on a training worker; exit code 75",
        )
        noise = furthest(*courses)
        yield within(
            f"{label}: resumed, loss in nats",
            furthest(killed, courses[0]) if len(killed) == len(courses[0]) else float("nan"),
            3 * noise,
            f"3 times the difference of two undisturbed trainings ({noise:.1e}; 0: equal to the last digit)",
        )


def _killed(command: list[str], store: Path, step: int) -> bool:
    """Kill the worker after a step; whether the stage then asked to be run again."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    try:
        folder = _wait_for_step(process, store, step)
        victims = _workers_of(folder)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        said = process.communicate(timeout=90)[0]
        return bool(victims) and process.returncode == 75
    finally:
        process.kill()
        print(said, flush=True)


def _wait_for_step(process: subprocess.Popen[str], store: Path, step: int, seconds: float = 90) -> Path:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        for path in store.glob("runs/train/*/metrics.jsonl"):
            if f'"step": {step},' in path.read_text(encoding="utf-8"):
                return path.parent
        time.sleep(0.02)
    raise RuntimeError(f"step {step} never came (exit code {process.poll()})")


def _workers_of(folder: Path) -> list[int]:
    """Process ids of the workers of a run."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "yanmo.train.worker" in words and any(str(folder) in word for word in words):
            found.append(process.pid)
    return found


_OUT_OF_MEMORY = {
    **{"layers": 10, "width": 512, "heads": 8, "kv_heads": 4, "head_width": 64, "feed_forward": 1536},
    **{"context": 512, "batch_rows": 64, "steps": 3, "head_learning_rate": 0.00375, "precision": "bf16"},
}
"""`small`: about 8 GB of activations with 64 rows."""
_SHARE_GIB = 4.0


def out_of_memory(setting: Any) -> Iterator[Measure]:
    """A micro batch that does not fit is halved, and the same samples give the same losses."""
    asked = _training(setting, **({"steps": 3} if setting.quick else _OUT_OF_MEMORY), packing="concat")
    with tempfile.TemporaryDirectory() as name:
        ground, changes = Ground(setting, Path(name), "store"), dict[str, str]()
        store = ground.copy("ample")
        chosen = {"micro_batch": "auto"} if setting.device == "cuda" else {}
        _run(ground.command("train", store, **asked, **chosen), XDG_CACHE_HOME=name)
        ample = output_of(store, "train")
        if setting.device == "cuda":
            import torch

            total = torch.cuda.get_device_properties(0).total_memory / 2**30
            # What is planned with says that it fits: the card alone refuses it.
            tight = {"memory_share": round(_SHARE_GIB / total, 4), "memory_gib": round(10 * total)}
        else:  # nobody limits a process's memory here: the fault is planted where a GPU would raise it
            changes, tight = {"PYTHONPATH": f"{_planted(Path(name))}:{os.environ.get('PYTHONPATH', '')}"}, {}
        store = ground.copy("tight")
        said = _run(
            ground.command("train", store, **asked, **tight, micro_batch=asked["batch_rows"]), **changes
        )
        halved = said.count("out of memory with a micro batch of")
        yield holds("the micro batch was halved", halved > 0, f"{halved} times, and the training ended well")
        yield within(
            "loss in nats beside ample memory",
            furthest(_losses(output_of(store, "train")), _losses(ample)),
            1e-4 if asked.get("precision") != "bf16" else 2e-2,
            "the same samples, in more and smaller forwards",
        )
        if setting.device == "cuda":
            yield from _estimated(asked, ample)


def _planted(folder: Path) -> str:
    sys.path.insert(0, str(_TESTS))
    from faults import install

    return str(install(folder / "site", "faults.small_memory(8)"))


def _estimated(asked: dict[str, Any], ample: Output) -> Iterator[Measure]:
    """The memory estimate beside the allocator's peak."""
    from yanmo.train.config import TrainConfig
    from yanmo.train.memory.estimate import estimate

    text = ample.path("metrics.jsonl").read_text(encoding="utf-8")
    peaks = [x["memory_peak_bytes"] for x in map(json.loads, text.splitlines()) if "memory_peak_bytes" in x]
    if not peaks:
        return
    names = {k: v for k, v in asked.items() if k not in ("metrics_port",)}
    said = estimate(TrainConfig(**names, device="cuda"), 400, "cuda")
    share = max(peaks) / (said.total - said.base)
    yield within("allocator's peak by the estimate", share, 1.1, f"{said}; peak {max(peaks) / 2**30:.2f} GiB")
