"""How a stage says that it failed, and what a retry of the same run finds (store/runs/fatal_record.py)."""

from __future__ import annotations

import functools
import logging

from yanmo.common.errors import DataError, EnvironmentFault, ExitCode, UsageError, advice, report
from yanmo.options.fields import StageOptions
from yanmo.stage.declaration import Stage
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import store_of
from yanmo.store.runs.fatal_record import FatalRecord, command_of, fatal_name, forget, keep, obeyed

log = logging.getLogger(__name__)
_LAST_LINE = 80 - len("00:00:00 evaluate ")


def failed(stage: Stage, error: Exception) -> int:
    """Log what went wrong and what to do, then the cause in one short line; returns the exit code for it.

    KFP shows the end of a log, some 80 characters of a line, and in red what says error.
    """
    code = report(error, log)
    cause = " ".join(advice(error).split())
    line = f"{stage.name} error {code}: {cause}"
    log.error("%s", line if len(line) <= _LAST_LINE else line[: _LAST_LINE - 3] + "...")
    return int(code)


def fatal_of_this_run(store: ObjectStore, stage: Stage, options: StageOptions) -> int | None:
    """The exit code of an earlier try of this same run that no retry can mend."""
    if not options.run_id or options.force:
        return None
    this_run = functools.partial(_fatal_record, stage, options)
    return obeyed(store, fatal_name(stage.name, options.run_id), this_run)


def record_fatal(stage: Stage, options: StageOptions, code: int, error: Exception) -> None:
    """Record that no retry of this run can mend `error`, where that is so."""
    if not options.run_id or code not in (ExitCode.USAGE, ExitCode.DATA):
        return
    try:
        store = store_of(options)
        keep(store, fatal_name(stage.name, options.run_id), _fatal_record(stage, options, code, error))
    except (OSError, UsageError, DataError, EnvironmentFault) as problem:  # maybe what ended the run
        log.debug("could not record the failure: %s", problem)


def forget_fatal(store: ObjectStore, stage: Stage, options: StageOptions) -> None:
    """Remove what an earlier try of this run recorded; no error, as this one has ended well."""
    if not options.run_id:
        return
    try:
        forget(store, fatal_name(stage.name, options.run_id))
    except (OSError, EnvironmentFault) as problem:
        log.debug("could not remove the record of an earlier failure: %s", problem)


def _fatal_record(
    stage: Stage, options: StageOptions, code: int = 0, error: BaseException | None = None
) -> FatalRecord:
    return FatalRecord(
        stage=stage.name,
        revision=stage.revision,
        run_id=options.run_id,
        command=command_of(options),
        exit_code=code,
        cause=type(error).__name__,
        message=advice(error) if error else "",
    )
