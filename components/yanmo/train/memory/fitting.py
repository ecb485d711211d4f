"""Whether a training fits into memory, and `--micro-batch auto`: the largest micro batch that does.

The memory estimate decides: equal machines choose equally. What does not fit all the same is halved, and the
workers start again with accumulation doubled: the global batch and so the samples of each step stay what they
were; sums in another order change the last digits, which is recorded. The rows that fitted are kept in the
run's folder.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path

from yanmo.common.control_group import usable_cpus
from yanmo.common.errors import EnvironmentFault
from yanmo.common.plain_json import json_value
from yanmo.common.words import plural
from yanmo.train.backends.accelerator import check_compiler
from yanmo.train.config import TrainConfig
from yanmo.train.job import MICRO_BATCH, Status, WorkerJob
from yanmo.train.memory.estimate import check, largest_that_fits
from yanmo.train.options.machine_options import AUTO

log = logging.getLogger(__name__)
_THREADS_OF_A_CPU, _LEAST_THREADS = 32, 512
"""Many times what is of use, and what a training may have that began on a large machine; 10,000 threads on 2
CPUs took 54 s of CPU, then SIGSEGV."""


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
    most = max(max(_THREADS_OF_A_CPU * cpus, _LEAST_THREADS) // options.ranks, 1)
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
