"""What a training commits: the model that its ranks wrote, metrics and card; then its working files go."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.given_file import json_value, read_object
from yanmo.common.made_by import made_by
from yanmo.common.words import plural
from yanmo.formats.token_cache import TokenCache
from yanmo.formats.training_record import finite, training_lines
from yanmo.stage.stage_run import Finish
from yanmo.store.commit import Result
from yanmo.store.output import Output
from yanmo.train import job
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import FOLDER as HEARTBEATS
from yanmo.train.job import forget_earlier_start, read_metrics
from yanmo.train.models.starting_model import CONFIG, shape_in
from yanmo.train.supervision.machine_check import TrainRun
from yanmo.train.supervision.unfinished import is_trained

log = logging.getLogger(__name__)
_CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
language: [zh, lzh]
---
# A Chinese language model trained by Yanmo

A {kind}-type decoder ({parameters:.2f} M parameters, {layers} layers, width {width}), trained for {steps}
steps on {tokens:.2f} M tokens with a context of {context} tokens. It continues texts.{base}

    from transformers import AutoModelForCausalLM, AutoTokenizer
    model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")

{marks}

## Validation, bits per character (without tags, ends of text included)

{table}

## Made from

Token cache `{cache}`, content digest `{digest}`. In the store config.yaml beside it has all options,
and metrics.jsonl the metrics of the training. Licences of the training text, by documents: {licenses}.
"""
_MARKS = """\
A text begins with `{begin}`; the tag of a genre may follow it (genres.json), as it did in
{tagged:.0f} % of the training documents. A text ends with `{end}`."""
_WHOLE = " It goes on\nfrom `{base}`, whose own licence holds too."
_ADAPTED = """ It is
`{base}`, whose own licence holds too, with what LoRA of rank {rank} added: {trained:.2f} M parameters were
trained, and `adapter/` has them alone."""


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
    if run.options.twins > 1:
        _say_whether_noise_is_missing(output, run.options.twins)
    is_trained(run, output)
    folder = run.work_folder.path
    run.work_folder.forget()
    job.forget_nodes(run.store, run.work_folder.name)
    for name in (job.CHECKPOINTS, job.EXPORT, job.NODES):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (job.METRICS, job.TRACE, job.MICRO_BATCH, "job.json", "workers.log"):
        (folder / name).unlink(missing_ok=True)
    forget_earlier_start(folder)
    with suppress(OSError):
        (folder / HEARTBEATS).rmdir()
    return Finish(metadata={"metrics": _metrics(output)})


def _say_whether_noise_is_missing(output: Output, twins: int) -> None:
    from yanmo.formats.seed_noise import PART

    if PART not in output.manifest.references:
        log.warning(
            "%s holds no seed noise: it was trained without --twins, or too few were done; the same command "
            "with --force trains it again and measures it by %s",
            output,
            plural(twins, "twin"),
        )


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


def model_card(
    options: TrainConfig,
    result: dict[str, Any],
    valid: dict[str, float | None],
    cache: Output,
    base: Output | None = None,
    marks: tuple[str, str] = ("<|bos|>", "<|eos|>"),
    *,
    has_tags: bool = True,
) -> str:
    """Return the card's text.

    Args:
        result: what the workers reported about the finished model, and its shape (layers, width).
        valid: genre -> bits per character; None where they were not finite.
        base: the model that it was trained from.
        marks: what a text begins and ends with.
        has_tags: whether genres have tags.
    """
    rows = [f"| {genre} | {_shown(bits)} |" for genre, bits in valid.items()]
    table = "\n".join(["| genre | bits per character |", "|---|---|", *rows]) if rows else "Not measured."
    return _CARD.format(
        kind=str(result.get("model_type", "qwen3")).capitalize(),
        parameters=result["parameters"] / 1e6,
        layers=result["layers"],
        width=result["width"],
        steps=result["steps"],
        tokens=result["tokens"] / 1e6,
        context=options.context,
        table=table,
        cache=cache,
        digest=cache.content_digest[:16],
        base=_base(options, result, base),
        marks=_marks(options, marks, has_tags),
        licenses=licenses_of(cache),
    )


def _base(options: TrainConfig, result: dict[str, Any], base: Output | None) -> str:
    if base is None:
        return ""
    name = f"train/{base.manifest.key}"
    if not options.lora_rank:
        return _WHOLE.format(base=name)
    return _ADAPTED.format(base=name, rank=options.lora_rank, trained=result["trained_parameters"] / 1e6)


def _marks(options: TrainConfig, marks: tuple[str, str], has_tags: bool) -> str:
    begin, end = marks
    if not has_tags:
        return f"A text begins with `{begin}` and ends with `{end}`."
    return _MARKS.format(begin=begin, end=end, tagged=100 * options.tag_share)


def _shown(bits: float | None) -> str:
    return "not finite" if bits is None else f"{bits:.3f}"


def licenses_of(cache: Output) -> str:
    """Return the licences that `curate` counted in the documents a token cache was made from, in words."""
    output: Output | None = cache
    while output is not None:
        counts = output.manifest.metadata.get("licenses")
        if counts:
            return ", ".join(f"{name or 'none given'} {count:,}" for name, count in sorted(counts.items()))
        try:
            output = output.input("documents")
        except DataError:  # deleted since then: no reason to lose the model
            break
    return "not known"
