"""The workers of a training, one time window after another: started, watched, paused, started again.

They are started again where the window changes (--night) and, with half the rows at a time, where a micro
batch did not fit.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from yanmo.common.errors import EnvironmentFault
from yanmo.store.pause import Pause
from yanmo.store.runs.failure_card import Details, attach, details_of
from yanmo.train import job
from yanmo.train.checkpoints.uploader import Uploader
from yanmo.train.health.stacks import Requests
from yanmo.train.job import Status, WorkerJob, clear
from yanmo.train.memory.estimate import divisors
from yanmo.train.memory.killed import KillWatch
from yanmo.train.memory.micro_batch import halve_micro_batch, largest_micro_batch
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.nodes.leader import Leader
from yanmo.train.supervision.ending import Ending, of_memory, raise_failure
from yanmo.train.supervision.one_start import Unbegun, full_ranks, run_ranks
from yanmo.train.supervision.power import power_limit
from yanmo.train.supervision.stop_requests import stop_requests
from yanmo.train.time_window import TimeWindow, TimeWindows

log = logging.getLogger(__name__)
_SHOWN_SECONDS = 1.0
"""How often the figures of the workers are read while nobody scrapes: as often as they write them."""


def train_in_windows(
    task: WorkerJob,
    windows: TimeWindows,
    gauges: MetricsGauges,
    uploader: Uploader,
    memory: KillWatch | None = None,
    others: Leader | None = None,
) -> Pause | None:
    """Run the workers, one time window after another, to the end; where and why they paused, if they did.

    Args:
        others: tells the other nodes of several what to train.

    Raises:
        Exception: the error that ended a worker, so that the stage has its exit code.
    """
    with _stop_file(task.folder / job.STOP) as stopping, Requests().heard() as requests:
        while True:
            clear(task.folder)
            window = windows.current()
            if stopping or (window.ends_at <= time.time() and window.then == "paused"):
                return _pause(task, _saved_step(task.folder), window, stopping)
            try:
                statuses = _one_window(
                    _for_window(task, window), gauges, uploader, stopping, requests, memory, others
                )
            except Unbegun:
                return _pause(task, _saved_step(task.folder), window, stopping)
            except Exception as error:
                _say_what_is_kept(error, uploader)
                raise
            if statuses is None:
                gauges.restarting("smaller micro batch")
                continue
            states = {status.state for status in statuses}
            if states == {"done"}:
                return None
            if states != {"changed"}:
                return _pause(task, max(status.step for status in statuses), window, stopping)
            gauges.restarting("time window")


def _say_what_is_kept(error: Exception, uploader: Uploader) -> None:
    """Put the last good checkpoint onto the card of a failure."""
    details = details_of(error) or Details()
    kept = uploader.newest()
    if kept is not None:
        details = dataclasses.replace(details, checkpoint=kept.shown, saved_at=kept.saved_at)
    attach(error, dataclasses.replace(details, is_resumable=True))


def _pause(task: WorkerJob, step: int, window: TimeWindow, stopping: list[float]) -> Pause:
    """Where and why it paused. Where somebody signals a rank and not the stage, nothing was
    asked here and no window is over."""
    is_planned = bool(window.reason) and not stopping
    whom = "" if stopping else " to another node or a rank" if task.options.nnodes > 1 else " to a rank"
    why = window.reason if is_planned else f"asked to stop by a signal{whom}"
    return Pause(where=f"step {step} of {task.options.steps}", why=why, is_planned=is_planned)


def _saved_step(folder: Path) -> int:
    """The step of the newest checkpoint, 0 where there is none; whether it is whole, the next start sees."""
    names = [path.name.removeprefix("step-") for path in (folder / job.CHECKPOINTS).glob("step-*")]
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _for_window(task: WorkerJob, window: TimeWindow) -> WorkerJob:
    """The job with the settings of a time window, and no larger a micro batch than has fitted."""
    options = task.options.by_night() if window.is_night else task.options
    most, note = largest_micro_batch(task.folder)
    if most and options.micro_rows > most:
        rows = next(n for n in divisors(options) if n <= most)  # it may be from a run with other --ranks
        options = dataclasses.replace(options, micro_batch=rows)
    elif window.is_night or task.options.night:
        note = f"settings of the {'night' if window.is_night else 'day'}"
    else:
        note = ""
    ends_at = None if math.isinf(window.ends_at) else window.ends_at
    return dataclasses.replace(
        task, options=options, ends_at=ends_at, then=window.then, reason=window.reason, note=note
    )


def _one_window(
    task: WorkerJob,
    gauges: MetricsGauges,
    uploader: Uploader,
    stopping: list[float],
    requests: Requests,
    memory: KillWatch | None,
    others: Leader | None = None,
) -> list[Status] | None:
    """How the ranks ended; None when the micro batch was halved and they have to be started again."""
    killed_before = memory.kills() if memory else 0
    if memory:
        memory.use(task.options.micro_rows)

    def look() -> None:
        gauges.show(_SHOWN_SECONDS)
        uploader.check()
        requests.serve(task.folder)
        if memory:
            memory.look()

    with power_limit(task.options.power_watts), uploader:
        task = others.begin(task, uploader.work_name) if others else task
        ending = run_ranks(task, gauges, stopping, look)
    full = full_ranks(ending, was_killed=bool(memory and memory.kills() > killed_before))
    return _outcome(task, ending, full, memory)


def _outcome(
    task: WorkerJob, ending: Ending, full: list[Status], memory: KillWatch | None
) -> list[Status] | None:
    """How the ranks ended; None where the micro batch was halved.

    Args:
        full: of the ranks that lacked memory.

    Raises:
        Exception: what ended the ranks.
    """
    if full:  # also while stopping: a micro batch that did not fit must not be tried again
        try:
            rows = halve_micro_batch(task, full[0])
        except EnvironmentFault as error:
            of_memory(ending, full[0], error)
            raise
        if memory:
            memory.keep_largest(rows)
        return None
    raise_failure(ending)
    return list(ending.statuses)


@contextmanager
def _stop_file(path: Path) -> Iterator[list[float]]:
    """While inside, SIGTERM, SIGHUP and Ctrl-C create the file that asks the workers to save and end.

    Yields:
        A list that holds the time of the first request, once there was one.
    """

    def note(is_first: bool) -> None:
        if is_first:
            log.info("asked to stop: saving after this step")
        try:
            path.touch()
        except OSError as error:  # an exception in here could end the stage anywhere
            log.warning("%s cannot be written (%s): the workers end without saving", path, error)

    with stop_requests(note) as asked:
        yield asked
