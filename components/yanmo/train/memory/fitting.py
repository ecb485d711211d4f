"""Whether a training fits into memory, and `--micro-batch auto`: the largest micro batch that does.

On a CPU (and where no GPU can be asked) the memory estimate decides: equal machines choose equally. On CUDA a
process of its own tries: forward and backward of the real decoder, halved after each out-of-memory, so that
nothing is left behind in the workers; the answer is cached by GPU, shape and settings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import EnvironmentFault
from yanmo.common.plain_json import json_value
from yanmo.common.words import plural
from yanmo.train.backends.accelerator import check_compiler
from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import (
    check,
    divisors,
    estimate,
    largest_that_fits,
    room,
)
from yanmo.train.memory.machine import gpu_name
from yanmo.train.options.machine_options import AUTO
from yanmo.train.options.model_options import shape_of

log = logging.getLogger(__name__)
_SECONDS = 300.0
_THREADS_OF_A_CPU, _LEAST_THREADS = 32, 512
"""Many times what is of use, and what a training may have that began on a large machine; 10,000 threads on 2
CPUs took 54 s of CPU, then SIGSEGV."""


def fitted(options: TrainConfig, vocab_size: int) -> TrainConfig:
    """Return the options with a micro batch that fits; says what the training needs and what its batch is.

    Raises:
        EnvironmentFault: what was asked for does not fit, or cannot be compiled; says what would do.
    """
    check_threads(options)
    device = _device(options)
    check_compiler(options, device)
    options = settle(options, vocab_size, device)
    log.info("memory by estimate: %s", check(options, vocab_size, device))
    log.info(
        "batch: %d rows x %s x %d ranks = %d rows = %s a step (%d positions each)",
        options.micro_rows,
        plural(options.accumulation, "forward"),
        options.world_size,
        options.batch_rows,
        plural(options.batch_rows * options.context, "token"),
        options.context,
    )
    return options


def check_threads(options: TrainConfig) -> None:
    """Refuse more threads than this machine can start.

    Raises:
        EnvironmentFault: so many; says how many would do.
    """
    cpus = usable_cpus()
    most = max(max(_THREADS_OF_A_CPU * cpus, _LEAST_THREADS) // options.ranks, 1)
    if options.threads > most:
        raise EnvironmentFault(
            f"--threads {options.threads} for each of {options.ranks} ranks, and {cpus} CPUs here: give at "
            f"most {most}; more than a CPU each only slows a training"
        )


def _device(options: TrainConfig) -> str:
    """Return where the workers will train, as far as can be seen without torch."""
    if options.device != "auto":
        return options.device
    return "cuda" if gpu_name() else "cpu"


def settle(options: TrainConfig, vocab_size: int, device: str) -> TrainConfig:
    """Return the options with a number in the place of `auto`."""
    if options.micro_batch != AUTO:
        return options
    rows = largest_that_fits(options, vocab_size, device)
    how = "by the memory estimate"
    if device == "cuda":
        rows, how = _cached(options, vocab_size, rows)
    log.info("--micro-batch auto: %d of %s, %s", rows, plural(options.rank_rows, "row"), how)
    return dataclasses.replace(options, micro_batch=rows)


def _cached(options: TrainConfig, vocab_size: int, estimated: int) -> tuple[int, str]:
    path = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "yanmo" / "micro_batch.json"
    key = _key(options, vocab_size)
    try:
        return int(json_value(path.read_text(encoding="utf-8"))[key]), f"remembered in {path}"
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = _try(options, vocab_size)
    if not found:
        return estimated, "by the memory estimate, as trying failed"
    _remember(path, key, found)
    return found, "by trying"


def _remember(path: Path, key: str, rows: int) -> None:
    """Add an answer to the cache; a cache that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        known = json_value(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError):
        known = {}
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        temporary.write_text(json.dumps({**known, key: rows}, indent=1), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        log.warning("cannot remember the micro batch: %s", error)


def _key(options: TrainConfig, vocab_size: int) -> str:
    names = ["context", "precision", "optimizer", "gradient_checkpointing", "attention", "packing", "compile"]
    names += ["dropout"] if options.dropout else []
    names += ["lora_rank", "lora_targets", "lora_dropout"] if options.lora_rank else []
    asked = {name: getattr(options, name) for name in (*names, "backend", "zero_stage", "offload", "ranks")}
    value = {**shape_of(options), **asked, "rows": options.rank_rows, "vocabulary": vocab_size}
    value |= {"gpu": gpu_name(), "gib": options.memory_gib, "share": options.memory_share}
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _try(options: TrainConfig, vocab_size: int) -> int:
    """Return what the process of its own found; 0 where it failed."""
    task = json.dumps({"options": dataclasses.asdict(options), "vocab_size": vocab_size})
    command = [sys.executable, "-m", "yanmo.train.memory.fitting"]
    try:
        done = subprocess.run(
            command, input=task, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        return int(done.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        log.warning("trying micro batches failed: %s", error)
        return 0


def search(options: TrainConfig, vocab_size: int, device: str) -> int:
    """Return the largest micro batch whose forward and backward leave room for gradients and optimizer."""

    from yanmo.model.lora import adapt
    from yanmo.train.backends.accelerator import prepare
    from yanmo.train.backends.loss_module import LossModule
    from yanmo.train.backends.precision import DTYPES
    from yanmo.train.models.first_decoder import decoder_shape, lora_of

    decoder = decoder_shape(options, vocab_size).to(device, DTYPES[options.precision])
    if options.lora_rank:
        adapt(decoder, lora_of(options), options.seed)
        decoder.to(device, next(decoder.parameters()).dtype)
    prepare(decoder, options, device)
    module = LossModule(decoder)
    known = estimate(options, vocab_size, device, 1)
    held = sum(p.numel() * p.element_size() for p in decoder.parameters())  # in the peak that is measured
    rest = known.optimizer + known.gradients + known.base + known.weights - held
    budget = room(options, device) - rest
    for rows in divisors(options):
        peak = _peak(module, rows, options.context, vocab_size, device)
        if peak is not None and peak <= budget:
            return rows
    return 1


def _peak(module: object, rows: int, context: int, vocab_size: int, device: str) -> int | None:
    """Return the bytes at the peak of a forward and backward; None where there was too little memory."""
    import numpy as np
    import torch

    from yanmo.model.attention import document_bounds

    assert isinstance(module, torch.nn.Module)
    module.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        ids = torch.randint(0, vocab_size, (rows, context), device=device)
        at = torch.arange(ids.numel(), device=device)
        bounds = torch.from_numpy(document_bounds(np.ones((rows, context), np.int64))).to(device)
        module(ids, torch.ones_like(ids), ids, 1.0 / ids.numel(), at, bounds).backward()
        return int(torch.cuda.max_memory_allocated())
    except torch.OutOfMemoryError:
        return None


def main() -> None:
    """Read a task from stdin and print the answer."""
    task = json.loads(sys.stdin.read())
    print(search(TrainConfig(**task["options"]), task["vocab_size"], "cuda"))


if __name__ == "__main__":
    main()
