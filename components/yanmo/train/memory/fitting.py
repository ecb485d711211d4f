"""Whether a training fits into memory and onto the disk; `--micro-batch auto`: the largest that fits.

The memory estimate decides: equal machines choose equally. What does not fit all the same is halved, and the
workers start again with accumulation doubled: the global batch and so the samples of each step stay what they
were; sums in another order change the last digits, which is recorded. The rows that fitted are kept in the
run's folder.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from pathlib import Path

from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.common.given_file import json_value
from yanmo.common.logs import human_bytes
from yanmo.common.words import plural
from yanmo.formats.token_cache import TokenCache
from yanmo.store.output import Output
from yanmo.train import job
from yanmo.train.backends.hardware import check_compiler
from yanmo.train.config import TrainConfig
from yanmo.train.job import MICRO_BATCH, Status, WorkerJob
from yanmo.train.memory.estimate import check, largest_that_fits, parameters
from yanmo.train.models.starting_model import check_finite, check_tokenizer, vocabulary_of, with_shape_of
from yanmo.train.options.machine_options import AUTO, MOST_THREADS

log = logging.getLogger(__name__)
_THREADS_OF_A_CPU = 32
"""Many times what is of use."""


def checked(options: TrainConfig, cache: TokenCache, model: Output | None, folder: Path) -> TrainConfig:
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
    check_space(folder, shaped, vocabulary)
    return dataclasses.replace(options, micro_batch=rows)


def check_space(folder: Path, options: TrainConfig, vocabulary: int) -> None:
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


def fitted(options: TrainConfig, vocab_size: int) -> TrainConfig:
    """Return the options with a micro batch that fits; says what the training needs and what its batch is.

    Raises:
        EnvironmentFault: what was asked for does not fit, or cannot be compiled; says what would do.
    """
    check_threads(options)
    device = options.device  # settled by now
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
    most = max(max(_THREADS_OF_A_CPU * cpus, MOST_THREADS) // options.ranks, 1)
    if options.threads > most:
        raise EnvironmentFault(
            f"--threads {options.threads} for each of {options.ranks} ranks, and {cpus} CPUs here: give at "
            f"most {most}; more than a CPU each only slows a training"
        )


def settle(options: TrainConfig, vocab_size: int, device: str) -> TrainConfig:
    """Return the options with a number in the place of `auto`."""
    if options.micro_batch != AUTO:
        return options
    rows = largest_that_fits(options, vocab_size, device)
    log.info("--micro-batch auto: %d of %s, by estimate", rows, plural(options.rank_rows, "row"))
    return dataclasses.replace(options, micro_batch=rows)


def largest_micro_batch(folder: Path) -> tuple[int, str]:
    """Return the most rows that fit, as far as is known, and why; (0, "") before anything did not fit."""
    try:
        value = json_value((folder / MICRO_BATCH).read_text(encoding="utf-8"))
        return int(value["rows"]), str(value["note"])
    except (FileNotFoundError, ValueError, KeyError):
        return 0, ""


def keep_largest(folder: Path, rows: int, note: str) -> None:
    """Note that no more rows than these are to be tried, and why."""
    value = {"rows": rows, "note": note}
    (folder / MICRO_BATCH).write_text(json.dumps(value), encoding="utf-8")


def halved(options: TrainConfig, rows: int) -> int:
    """Return the largest micro batch of at most half as many rows that shares out those of a rank."""
    return max(n for n in range(1, rows // 2 + 1) if options.rank_rows % n == 0)


def halve_micro_batch(task: WorkerJob, status: Status) -> int:
    """Note that the job's micro batch did not fit; returns the rows of the next one.

    Raises:
        EnvironmentFault: it was a single row.
    """
    rows, of_rank = task.options.micro_rows, task.options.rank_rows
    if rows <= 1:
        raise EnvironmentFault(
            f"out of memory with one row of {task.options.context} positions per forward ({status.message}); "
            "take a smaller --context or model, more --ranks, or a machine with more memory"
        )
    half = halved(task.options, rows)
    note = f"out of memory with a micro batch of {rows} rows on rank {status.rank}"
    keep_largest(task.folder, half, note)
    log.warning(
        "%s; going on with %s, %s a step", note, plural(half, "row"), plural(of_rank // half, "forward")
    )
    return half
