"""Out of memory is no end: the micro batch is halved, accumulation doubled, and the workers start again.

The global batch and so the samples of each step stay what they were; sums in another order change the last
digits, which is recorded. The rows that fitted are kept in the run's folder.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from yanmo.common.errors import EnvironmentFault
from yanmo.common.plain_json import json_value
from yanmo.common.words import plural
from yanmo.train.config import TrainConfig
from yanmo.train.job import MICRO_BATCH, Status, WorkerJob

log = logging.getLogger(__name__)


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
