"""`yanmo train`: checks, starts the ranks, watches them, commits the model.

The supervisor never imports torch: it stays small and answers /metrics and signals whatever the workers do.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.common.json_object import read_object
from yanmo.common.logs import human_bytes
from yanmo.common.made_by import made_by
from yanmo.common.plain_json import json_value
from yanmo.common.words import plural
from yanmo.formats.documents import text_form
from yanmo.formats.round_trip import open_tokenizer
from yanmo.formats.seed_noise import PART
from yanmo.formats.stage_cost import finite, training_lines
from yanmo.formats.token_cache import TokenCache
from yanmo.options.fields import by_kind
from yanmo.stage.channel_lease import Busy, alone_in
from yanmo.stage.exporter import Telemetry
from yanmo.stage.stage_run import Finish
from yanmo.store.commit import Result
from yanmo.store.output import Output
from yanmo.store.pause import Pause
from yanmo.train import job
from yanmo.train.backends.hardware import this_machine
from yanmo.train.backends.zero_config import engine_config
from yanmo.train.checkpoints.uploader import Uploader
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.health.watchdog import FOLDER as HEARTBEATS
from yanmo.train.job import WorkerJob, clear, read_metrics
from yanmo.train.memory.estimate import parameters
from yanmo.train.memory.fitting import fitted
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.models.model_card import model_card
from yanmo.train.models.starting_model import (
    CONFIG,
    check_finite,
    check_tokenizer,
    shape_in,
    vocabulary_of,
    with_shape_of,
)
from yanmo.train.nodes.leader import Leader, leading, tell_busy
from yanmo.train.nodes.record import forget_parts, record_name
from yanmo.train.sinks.process import Sinks
from yanmo.train.supervision.automatic import Look, TrainRun, check_machine
from yanmo.train.supervision.seed_twins import seed_noise
from yanmo.train.supervision.unfinished import begins, ends, is_trained, pauses
from yanmo.train.supervision.windows import train_in_windows
from yanmo.train.time_window import TimeWindows

log = logging.getLogger(__name__)


def work(run: TrainRun, look: Look = this_machine) -> Result:
    """Train, and put the model into the attempt.

    Args:
        look: returns what this machine has.
    """
    options: TrainConfig = run.options
    cache = TokenCache.open(run.input("token_cache"))
    folder = run.work_folder.path
    folder.mkdir(parents=True, exist_ok=True)
    uploader = Uploader(run.work_folder, run.attempt.lease, run.telemetry)
    if (run.telemetry.value("tries", room="stage") or 1) > 1:
        run.telemetry.add("restarts", reason="another try")
    windows, parts = TimeWindows(options), dict[str, Output]()
    if not windows.is_over:
        begins(run, uploader.label)

    @functools.cache
    def task() -> WorkerJob:
        check_machine(run, look)
        return _task(run, cache, folder)

    with leading(run) as leader:
        try:
            if not (folder / job.EXPORT).exists():
                first = task()
                uploader.restore()
                if leader:
                    forget_parts(run.store, run.work_folder.name)
                with _sinks(run, first) as sinks:
                    gauges = MetricsGauges(run.telemetry, folder)
                    pause = train_in_windows(first, windows, gauges, uploader, leader)
                    sinks.is_done = pause is None
                if pause:
                    uploader.save()
                    pauses(run, uploader.label, pause)
                    if leader:
                        leader.pauses(pause)
                    return Result(counts={}, pause=pause)
        except Exception:
            ends(run, uploader.label)
            raise
        if options.twins:
            noise = seed_noise(run, task, functools.partial(_train_twin, windows, leader))
            parts = {PART: noise} if noise else {}
    return dataclasses.replace(_result(run, cache, folder), references=parts)


@contextmanager
def alone(run: TrainRun) -> Iterator[None]:
    """Hold the lease of the channel, where `--when-busy` asks for it: two nights then never train at once.

    Raises:
        Busy: another training of the channel is at work.
    """
    options = run.options
    if options.when_busy == "train":
        yield
        return
    waits = options.when_busy == "wait"
    try:
        with alone_in(run.store, run.stage.name, options.channel, options.run_id, waits=waits):
            yield
    except Busy as reason:
        if options.nnodes > 1:
            tell_busy(run, str(reason))
        raise


def _sinks(run: TrainRun, task: WorkerJob) -> Sinks:
    """Return the places where the figures of the training go besides.

    Its options are shown there as config.yaml holds them: those of its surroundings may hold a password.
    """
    options = task.options
    shown = by_kind(options, "semantic", "execution")
    about = {"key": run.key, "run_id": options.run_id, "channel": options.channel, "options": shown}
    log_options = {"log_level": options.log_level, "log_format": options.log_format}
    return Sinks(options.sinks, task.folder, about, log_options)


def _task(run: TrainRun, cache: TokenCache, folder: Path) -> WorkerJob:
    """Return the job of the workers, checked."""
    model = run.inputs["model"]
    options = _checked(run.options, cache, model, folder)
    if options.backend == "deepspeed":
        engine_config(options)  # refuses a file that contradicts, before torch is imported
    return WorkerJob(
        options=options,
        store=run.store.uri,
        token_cache=run.input("token_cache").reference,
        model=model.reference if model else None,
        folder=folder,
    )


def _train_twin(
    windows: TimeWindows, others: Leader | None, task: WorkerJob, uploader: Uploader
) -> Pause | None:
    """`train_in_windows` without metrics on /metrics, which belong to the model."""
    gauges = MetricsGauges(Telemetry(STAGE.name, STAGE.metrics), task.folder)
    return train_in_windows(task, windows, gauges, uploader, others)


def forget(run: TrainRun, output: Output) -> Finish:
    """Delete the checkpoints and working files of a finished run; its model is committed."""
    if run.options.twins > 1 and PART not in output.manifest.references:
        log.warning(
            "%s holds no seed noise: it was trained without --twins, or too few were done; the same command "
            "with --force trains it again and measures it by %s",
            output,
            plural(run.options.twins, "twin"),
        )
    is_trained(run, output)
    folder = run.work_folder.path
    run.work_folder.forget()
    forget_parts(run.store, run.work_folder.name)
    run.store.delete(record_name(run.key))
    for name in (job.CHECKPOINTS, job.EXPORT, job.NODES):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (job.METRICS, job.TRACE, job.MICRO_BATCH, "job.json", "workers.log"):
        (folder / name).unlink(missing_ok=True)
    clear(folder)
    with suppress(OSError):
        (folder / HEARTBEATS).rmdir()
    return Finish(metadata={"metrics": _metrics(output)})


def _metrics(model: Output) -> dict[str, float]:
    """Return the training in numbers whose names hold their units, for KFP's UI; no promises of quality."""
    counts, lines = model.manifest.counts, training_lines(model)
    last = [line for line in lines if "tokens_per_second" in line][-1:] or [{}]
    values = {
        "parameters_millions": (counts.get("parameters"), 1e-6),
        "train_steps": (counts.get("steps"), 1),
        "train_tokens_millions": (counts.get("tokens"), 1e-6),
        "train_minutes": (last[0].get("seconds"), 1 / 60),
        "train_tokens_per_second": (last[0].get("tokens_per_second"), 1),
        "train_bits_per_char": (last[0].get("bits_per_character"), 1),
    }
    measured = {name: (finite(value), factor) for name, (value, factor) in values.items()}
    return {name: round(v * factor, 4) for name, (v, factor) in measured.items() if v is not None}


def _checked(options: TrainConfig, cache: TokenCache, model: Output | None, folder: Path) -> TrainConfig:
    """Return the options with a micro batch that fits, after checks of the starting model, memory and disk.

    Raises:
        DataError, EnvironmentFault, UsageError: a check failed; says what to do.
    """
    shaped = options
    if model is None and options.lora_rank:
        raise UsageError(
            f"--lora-rank {options.lora_rank} trains beside a frozen model, and there is none: give --model"
        )
    if model is not None:
        check_tokenizer(model, cache)
        shaped = with_shape_of(options, model)
        check_finite(model)
    # Only the micro batch is taken over: a checkpoint remembers the options as they were given.
    vocabulary = vocabulary_of(model) if model else cache.vocab_size
    rows = fitted(shaped, vocabulary).micro_batch  # first: more disk space would not help it
    _check_space(folder, shaped, vocabulary)
    return dataclasses.replace(options, micro_batch=rows)


def _check_space(folder: Path, options: TrainConfig, vocabulary: int) -> None:
    """Refuse to start where two checkpoints and the model will not fit in the free space.

    Raises:
        EnvironmentFault: the whole disk is too small, or has too little space now; how much is needed.
    """
    every, trained = parameters(options, vocabulary)
    needed = 4 * (3 * 3 * trained + 2 * every)  # weight and two states, three times; the model twice
    disk = shutil.disk_usage(folder)
    own = sum(path.stat().st_size for path in folder.glob(f"{job.CHECKPOINTS}/*/*"))  # if it is resumed
    if disk.free + own >= needed:
        return
    what = f"checkpoints and model of {every / 1e6:.1f} M parameters need {human_bytes(needed)}"
    if disk.total < needed:
        raise EnvironmentFault(
            f"{folder}: {what}, and the whole disk has {human_bytes(disk.total)}; give a --store on a larger "
            "one, or a smaller model (--size, --layers, --width)"
        )
    raise EnvironmentFault(
        f"{folder}: {human_bytes(disk.free)} free, {what}; free space, or give another --store"
    )


def _result(run: TrainRun, cache: TokenCache, folder: Path) -> Result:
    export = folder / job.EXPORT
    result: dict[str, Any] = json_value((export / job.RESULT).read_text(encoding="utf-8"))
    for name in result["files"]:
        shutil.copyfile(export / name, run.attempt.path(name))
        run.attempt.add(name)
    lines = read_metrics(folder / job.METRICS)
    run.attempt.write("metrics.jsonl", (folder / job.METRICS).read_bytes(), role="record")
    valid: dict[str, float | None] = {}
    for line in lines:
        valid = line.get("valid_bits_per_character", valid)
    if (folder / job.TRACE).exists():
        shutil.copyfile(folder / job.TRACE, run.attempt.path(job.TRACE))
        run.attempt.add(job.TRACE, role="record")
    shape = shape_in(read_object(export / CONFIG))
    known = open_tokenizer(cache.tokenizer.path("tokenizer.json"))
    card = model_card(
        run.options,
        {**result, **shape},
        valid,
        run.input("token_cache"),
        run.inputs["model"],
        (known.id_to_token(cache.bos) or "", known.id_to_token(cache.eos) or ""),
        has_tags=any(tag >= 0 for tag in cache.tag_ids),
    )
    run.attempt.write("README.md", card, role="record")
    counts = {name: result[name] for name in ("steps", "tokens", "parameters")}
    metadata: dict[str, Any] = {
        "valid_bits_per_character": valid,
        "seconds": result["seconds"],
        "made_by": made_by(),
        "genres": list(cache.genres),
        "precision": run.options.precision,
        "text_form": text_form(run.input("token_cache")),
        **_lora(run, result),
        "events": [line for line in lines if "event" in line],
    }
    metadata |= {name: result[name] for name in ("device", "device_name", "ranks")}  # for GPU-hours
    return Result(counts=counts, metadata=metadata)


def _lora(run: TrainRun, result: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded of an adapter; nothing where all weights were trained."""
    o = run.options
    if not o.lora_rank:
        return {}
    shape: dict[str, Any] = {"rank": o.lora_rank, "alpha": o.lora_alpha, "dropout": o.lora_dropout}
    shape |= {"targets": list(o.lora_names), "trained_parameters": result["trained_parameters"]}
    return {"lora": shape}
