"""What a training commits: the model that its ranks wrote, metrics and card; then its working files go."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from yanmo.common.given_file import read_object
from yanmo.common.made_by import made_by
from yanmo.common.plain_json import json_value
from yanmo.common.words import plural
from yanmo.formats.seed_noise import PART
from yanmo.formats.stage_cost import finite, training_lines
from yanmo.formats.token_cache import TokenCache
from yanmo.stage.stage_run import Finish
from yanmo.store.commit import Result
from yanmo.store.output import Output
from yanmo.train import job
from yanmo.train.health.watchdog import FOLDER as HEARTBEATS
from yanmo.train.job import clear, read_metrics
from yanmo.train.models.model_card import model_card
from yanmo.train.models.starting_model import CONFIG, shape_in
from yanmo.train.nodes.record import forget_parts, record_name
from yanmo.train.supervision.machine_check import TrainRun
from yanmo.train.supervision.unfinished import is_trained

log = logging.getLogger(__name__)


def committed(run: TrainRun, cache: TokenCache, folder: Path) -> Result:
    """Put what the ranks exported into `folder` into the attempt; return what the manifest says of it."""
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
    card = model_card(
        run.options,
        {**result, **shape},
        valid,
        run.input("token_cache"),
        run.inputs["model"],
        tuple(result["marks"]),
        has_tags=any(tag >= 0 for tag in cache.tag_ids),
    )
    run.attempt.write("README.md", card, role="record")
    counts = {name: result[name] for name in ("steps", "tokens", "parameters")}
    of_text = run.input("token_cache").manifest.metadata
    metadata: dict[str, Any] = {
        "valid_bits_per_character": valid,
        "seconds": result["seconds"],
        "made_by": made_by(),
        "genres": list(cache.genres),
        "precision": run.options.precision,
        **{name: of_text[name] for name in ("text_form",) if name in of_text},
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
