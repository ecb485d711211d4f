"""`yanmo train`: checks, starts the workers with torchrun, watches them, commits the model.

The supervisor never imports torch: it stays small and answers /metrics and signals whatever the workers do.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from yanmo.common.documents import text_form
from yanmo.common.errors import StorageError
from yanmo.common.logs import human_bytes
from yanmo.common.stage_run import Finish, StageRun
from yanmo.common.store.commit import Result
from yanmo.common.store.output import Output
from yanmo.common.token_cache import TokenCache
from yanmo.train import job
from yanmo.train.config import TrainConfig
from yanmo.train.job import Job, Status, clear, parse_status, raise_failure, read_metrics
from yanmo.train.keeper import Keeper
from yanmo.train.model_card import model_card

log = logging.getLogger(__name__)

_OURS = re.compile(rb"^\d\d:\d\d:\d\d train ")
"""Lines of the workers' log that a person is shown at once; the rest (torchrun's) goes to workers.log."""
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 120.0
"""How long the workers may take to save after they were asked to stop."""


def work(run: StageRun) -> Result:
    """Train, and put the model into the attempt."""
    options: TrainConfig = run.options
    cache = TokenCache.open(run.input("token_cache"))
    folder = run.work_folder.path
    folder.mkdir(parents=True, exist_ok=True)
    keeper = Keeper(run.work_folder, run.attempt.lease)
    if not (folder / job.EXPORT).exists():
        _check_space(folder, options, cache)
        model = run.inputs["model"]
        task = Job(
            options=options,
            store=run.store.uri,
            token_cache=run.input("token_cache").reference,
            model=model.reference if model else None,
            folder=folder,
        )
        keeper.restore()
        if not _train(task, run, keeper):
            keeper.save()
            return Result(counts={}, status="paused")
    return _result(run, cache, folder)


def forget(run: StageRun, output: Output) -> Finish:
    """Drop the finished run's checkpoints and working files; the model is committed."""
    folder = run.work_folder.path
    run.work_folder.forget()
    for name in (job.CHECKPOINTS, job.EXPORT):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (job.METRICS, "job.json", "workers.log"):
        (folder / name).unlink(missing_ok=True)
    clear(folder)
    return Finish()


def _check_space(folder: Path, options: TrainConfig, cache: TokenCache) -> None:
    """Refuse to start where two checkpoints and the model will not fit.

    Raises:
        StorageError: too little space, how much there is and is needed.
    """
    tables = (1 if options.tied_head else 2) * cache.vocab_size * options.width
    attention = 2 * (options.heads + options.kv_heads) * options.head_width
    layer = options.width * (attention + 3 * options.feed_forward)
    parameters = tables + options.layers * layer
    needed = parameters * 4 * (3 * 3 + 2)  # weight and two states, three times; the model twice
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StorageError(
            f"{folder}: {human_bytes(free)} free, checkpoints and model of {parameters / 1e6:.1f} M "
            f"parameters need {human_bytes(needed)}; free space, or give another --store"
        )


def _train(task: Job, run: StageRun, keeper: Keeper) -> bool:
    """Run the workers to their end; False when they paused.

    Raises:
        Exception: what ended a worker, so that the stage's exit code is its own.
    """
    clear(task.folder)
    path = task.write()
    with _stop_file(task.folder / job.STOP) as stopping:
        process = _start(task.options, path)
        said = _WorkersLog(process, task.folder / "workers.log")
        said.start()
        try:
            with keeper:
                _watch(process, task, run, stopping)
        finally:
            _end(process)
        said.join()
    _show(run, task.folder)
    raise_failure(said.statuses, task.options.ranks, said.tail)
    return all(status.state == "done" for status in said.statuses)


def _start(options: TrainConfig, path: Path) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "yanmo.train.torchrun", "--standalone", "--max-restarts=0"),
        *(f"--nproc-per-node={options.ranks}", "-m", "yanmo.train.worker", str(path)),
    ]
    env = {
        **os.environ,
        "OMP_NUM_THREADS": str(options.threads),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(int(_GRACE_SECONDS)),
        "PYTHONWARNINGS": "ignore",
        # Sums in another order give other last digits; this keeps one machine's runs equal.
        "MKL_CBWR": os.environ.get("MKL_CBWR", "AUTO,STRICT"),
    }
    # A session of its own: Ctrl-C reaches only the supervisor, which asks for an orderly stop.
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, start_new_session=True)


def _watch(process: subprocess.Popen[bytes], task: Job, run: StageRun, stopping: list[float]) -> None:
    while process.poll() is None:
        time.sleep(_POLL_SECONDS)
        _show(run, task.folder)
        if stopping and time.monotonic() - stopping[0] > _GRACE_SECONDS:
            log.warning("workers did not save within %d s; ending them", _GRACE_SECONDS)
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and its workers if they still run (they end with it, see worker.py)."""
    if process.poll() is None:
        process.kill()
        process.wait()


@contextmanager
def _stop_file(path: Path) -> Iterator[list[float]]:
    """While inside, SIGTERM and Ctrl-C create the file that asks the workers to save and end.

    Yields:
        A list that holds the time of the first request, once there was one.
    """
    asked: list[float] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        path.touch()
        if not asked:
            asked.append(time.monotonic())
            log.info("asked to stop: saving after this step")

    before = {s: signal.signal(s, stop) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _WorkersLog(threading.Thread):
    """Reads what torchrun and the workers write, to the end, whatever becomes of the disk.

    Our lines go on to a person at once, all of them to workers.log, and statuses are picked out.
    """

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        super().__init__(daemon=True)
        assert process.stderr is not None
        self._pipe, self._path = process.stderr, path
        self._tail: deque[str] = deque(maxlen=15)
        self.statuses: list[Status] = []

    def run(self) -> None:
        file = self._path.open("wb", buffering=0)
        for line in self._pipe:
            status = parse_status(line)
            if status is not None:
                self.statuses.append(status)
                continue
            self._tail.append(line.decode(errors="replace"))
            with suppress(OSError):  # a full disk must not block the workers' writes
                file.write(line)
            if _OURS.match(line):
                sys.stderr.buffer.write(line)
                sys.stderr.flush()

    @property
    def tail(self) -> str:
        """The last lines."""
        return "".join(self._tail)


_GAUGES = {
    "loss": "Loss of the last interval, nats per token",
    "bits_per_character": "Training loss of the last interval, bits per character",
    "learning_rate": "Learning rate of the matrices",
    "grad_norm": "Norm of the gradient before clipping",
    "tokens_per_second": "Tokens trained on per second",
    "step": "Optimizer steps done",
}


def _show(run: StageRun, folder: Path) -> None:
    """Put the newest lines of metrics.jsonl on /metrics."""
    path = folder / job.METRICS
    size = path.stat().st_size if path.exists() else 0
    if size == run.extra.get("metrics_bytes"):
        return
    run.extra["metrics_bytes"] = size
    for line in read_metrics(path)[-2:]:
        for name, help in _GAUGES.items():
            if name in line:
                run.telemetry.gauge(name, help).set(line[name])
        for genre, bits in line.get("valid_bits_per_character", {}).items():
            gauge = run.telemetry.gauge(
                "valid_bits_per_character", "Validation bits per character", ("genre",)
            )
            gauge.labels(genre).set(bits)


def _result(run: StageRun, cache: TokenCache, folder: Path) -> Result:
    export = folder / job.EXPORT
    result: dict[str, Any] = json.loads((export / job.RESULT).read_text(encoding="utf-8"))
    for name in result["files"]:
        shutil.copyfile(export / name, run.attempt.path(name))
        run.attempt.add(name)
    lines = read_metrics(folder / job.METRICS)
    run.attempt.write("metrics.jsonl", (folder / job.METRICS).read_bytes(), role="record")
    valid: dict[str, float] = {}
    for line in lines:
        valid = line.get("valid_bits_per_character", valid)
    card = model_card(run.options, result, valid, run.input("token_cache"))
    run.attempt.write("README.md", card, role="record")
    counts = {name: result[name] for name in ("steps", "tokens", "parameters")}
    metadata = {
        "valid_bits_per_character": valid,
        "seconds": result["seconds"],
        "genres": list(cache.genres),
        "precision": run.options.precision,
        "text_form": text_form(run.input("token_cache")),
    }
    return Result(counts=counts, metadata=metadata)
