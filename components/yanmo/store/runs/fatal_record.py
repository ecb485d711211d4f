"""How a run ended that no retry can mend: read by the retries of a pipeline, so that each ends at once.

    <store>/runs/<stage>/fatal/<run id>.json    written over by each end for good, removed by a good one

A record is obeyed by the same command of the same run id, stage revision and version of Yanmo only. A version
may take a passing fault for bad data, and what it wrote must not end the same command for ever. So whatever
another version wrote is tried again once: the next record is ours.

What a machine lacked (78) is obeyed for a quarter of an hour only: by the retries that follow at once, not by
a person's, who has given it more memory or another Secret in between.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from yanmo.common.errors import DataError, ExitCode
from yanmo.common.logs import human_seconds
from yanmo.common.made_by import code
from yanmo.store.manifest import digest
from yanmo.store.objects import ObjectStore, as_part
from yanmo.store.record import Record
from yanmo.store.schema import utc_now

log = logging.getLogger(__name__)
_MAX_MESSAGE = 10_000
_MACHINE_SECONDS = 900.0
_BESIDE = {
    *("endpoint", "executor_input", "force", "log_format", "log_level", "metrics_port"),
    *("reference_out", "run_id", "scratch", "scratch_gib", "wait_seconds"),
    *("metrics_address", "metrics_wait_seconds", "gpu_metrics"),
    "pushgateway",
}
"""Options that cannot change how a run ends, or differ between tries of one command."""


class Ended(NamedTuple):
    """What a record that is obeyed says."""

    exit_code: int
    message: str


@dataclass(frozen=True, kw_only=True)
class FatalRecord:
    """How one run of a stage ended."""

    stage: str
    revision: int
    run_id: str
    command: str
    """sha256 of the options that count."""
    exit_code: int
    cause: str
    """The kind of error: DataError, UsageError, FileNotFoundError ..."""
    message: str
    made_by: str = field(default_factory=code)
    """Commit or version of the code that wrote it."""
    made_at: str = field(default_factory=utc_now)


FATAL = Record("yanmo.fatal/2", FatalRecord)


def command_of(options: Any) -> str:
    """The digest of the options that count, for `FatalRecord.command`."""
    return digest({name: str(value) for name, value in asdict(options).items() if name not in _BESIDE})


def fatal_name(stage: str, run_id: str) -> str:
    """Where the record of a run lies."""
    return f"runs/{stage}/fatal/{as_part(run_id)}.json"


def obeyed(store: ObjectStore, name: str, this_run: Callable[[], FatalRecord]) -> Ended | None:
    """What the record `name` says, logged with what to do; None where the run shall be tried.

    Args:
        this_run: gives what this run would write; only what it is of is looked at.
    """
    where = f"{store.uri}/{name}"
    try:
        found = FATAL.read(store, name)
    except DataError as error:
        log.warning(
            "an earlier try of this run ended for good, as a record says; trying once more: %s", error
        )
        return None
    if found is None:
        return None
    if found.exit_code == ExitCode.ENVIRONMENT and (age := _age(store, name)) > _MACHINE_SECONDS:
        log.warning(
            "%s: an earlier try of this run ended %s ago for want of something on its machine; trying",
            where,
            human_seconds(age),
        )
        return None
    ours = this_run()
    of = ("stage", "revision", "run_id", "command", "made_by")
    differs = [name for name in of if getattr(found, name) != getattr(ours, name)]
    if differs:
        log.warning(
            "%s: an earlier try of this run ended for good, with another %s; trying",
            where,
            ", ".join(differs),
        )
        return None
    log.error(
        "an earlier try of run %s ended for good at %s (%s): %s. Nothing was tried now. Once the cause is "
        "mended: give --force, or another --run-id, or delete %s and retry",
        ours.run_id,
        found.made_at,
        found.cause,
        found.message,
        where,
    )
    return Ended(found.exit_code, found.message)


def _age(store: ObjectStore, name: str) -> float:
    """Seconds since the record was written, by the store's clock."""
    found = store.stat(name)
    return store.clock() - found.modified if found else 0.0


def keep(store: ObjectStore, name: str, record: FatalRecord) -> None:
    """Write the record, over an earlier one of the run."""
    FATAL.write(store, name, dataclasses.replace(record, message=record.message[:_MAX_MESSAGE]))


def forget(store: ObjectStore, name: str) -> None:
    """Remove the record, if there is one: the run ended well."""
    if store.stat(name) is not None:
        store.delete(name)
