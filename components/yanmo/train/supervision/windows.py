"""The workers of a training, one time window after another: started, watched, paused, started again.

They are started again where the window changes (--night) and, with half the rows at a time, where a micro
batch did not fit.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from yanmo.common import waiting
from yanmo.common.errors import EnvironmentFault
from yanmo.stage.nvml import power_limit
from yanmo.store.pause import Pause
from yanmo.store.runs.failure_card import Details, attach, details_of
from yanmo.train import job
from yanmo.train.backends.hardware import memory_kills
from yanmo.train.checkpoints.uploader import Uploader
from yanmo.train.health.watchdog import BEFORE_OTHERS, doings
from yanmo.train.job import Status, WorkerJob, clear
from yanmo.train.memory.estimate import divisors
from yanmo.train.memory.fitting import halve_micro_batch, largest_micro_batch
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.nodes.leader import Leader
from yanmo.train.supervision.ending import Ending, describe, raise_failure
from yanmo.train.supervision.ranks import Frozen, Ranks, WorkersLog, start, watch
from yanmo.train.time_window import TimeWindow, TimeWindows

log = logging.getLogger(__name__)
_SHOWN_SECONDS = 1.0
"""How often the figures of the workers are read while nobody scrapes: as often as they write them."""
_DOING_SECONDS = 3.0
"""After so long a rank has written down what it was doing."""


def train_in_windows(
    task: WorkerJob,
    windows: TimeWindows,
    gauges: MetricsGauges,
    uploader: Uploader,
    others: Leader | None = None,
) -> Pause | None:
    """Run the workers, one time window after another, to the end; where and why they paused, if they did.

    Args:
        others: tells the other nodes of several what to train.

    Raises:
        Exception: the error that ended a worker, so that the stage has its exit code.
    """
    with _stop_file(task.folder / job.STOP) as stopping:
        while True:
            clear(task.folder)
            window = windows.current()
            if stopping or (window.ends_at <= time.time() and window.then == "paused"):
                return _pause(task, _saved_step(task.folder), window, stopping)
            try:
                statuses = _one_window(_for_window(task, window), gauges, uploader, stopping, others)
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
    """Return where and why it paused. Where somebody signals a rank and not the stage, nothing was
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
    """Return the job with the settings of a time window, and no larger a micro batch than has fitted."""
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
    others: Leader | None = None,
) -> list[Status] | None:
    """Return how the ranks ended; None when the micro batch was halved and they have to be started again.

    Raises:
        Exception: what ended the ranks.
    """
    killed_before = memory_kills()

    def look() -> None:
        gauges.show(_SHOWN_SECONDS)
        uploader.check()

    with power_limit(task.options.power_watts), uploader:
        task = others.begin(task, uploader.work_name) if others else task
        ending = run_ranks(task, gauges, stopping, look)
    full = full_ranks(ending, was_killed=memory_kills() > killed_before)
    if full:  # also while stopping: a micro batch that did not fit must not be tried again
        try:
            halve_micro_batch(task, full[0])
        except EnvironmentFault as error:
            raise describe(ending, error, full[0].rank, "", "lost it") from None
        return None
    raise_failure(ending)
    return list(ending.statuses)


class Unbegun(Exception):
    """This process is asked to stop, and its ranks still wait for those of other nodes."""


def run_ranks(
    task: WorkerJob, gauges: MetricsGauges, stopping: Sequence[float], each_time: Callable[[], None]
) -> Ending:
    """Run the ranks of this node until they have ended; return all that is known of that.

    Args:
        stopping: holds the monotonic time of a request to stop, once there was one.
        each_time: called a few times a second.

    Raises:
        Frozen: they had to be ended from outside.
        Unbegun: see there.
    """
    options, place = task.options, task.place

    def look() -> None:
        is_late = bool(stopping) and time.monotonic() - stopping[0] > _DOING_SECONDS
        if place and is_late and all(doing in BEFORE_OTHERS for doing in doings(task.own).values()):
            raise Unbegun("while its ranks waited for those of other nodes")
        each_time()

    gauges.starting(options, place)
    group = start(options, task.write(), place)
    workers_log = WorkersLog(group, task.own / "workers.log")
    workers_log.start()
    try:
        watch(group, workers_log, task.own, options.hang_seconds, place, stopping, look)
    except BaseException as error:
        gauges.ended(well=False)
        if isinstance(error, Frozen):
            why, others = ("", "did not stop") if error.rank is None else ("stands still", "waited for it")
            rank = 0 if error.rank is None and options.world_size == 1 else error.rank
            describe(_ending(task, workers_log, group), error, rank, why, others)
        raise
    finally:
        group.end()
    workers_log.wait()
    states = {status.rank: status.state for status in workers_log.statuses}
    gauges.ended(well=len(states) == options.ranks and "failed" not in states.values())
    return _ending(task, workers_log, group)


def full_ranks(ending: Ending, *, was_killed: bool) -> list[Status]:
    """Return the ranks that lacked memory.

    Args:
        was_killed: whether the system killed processes of this container for it meanwhile.
    """
    full = [status for status in ending.statuses if status.out_of_memory]
    lost = sorted(set(ending.own) - {status.rank for status in ending.statuses}) if was_killed else []
    message = "killed for lack of the container's memory"
    return full + [Status(rank, "failed", message=message, out_of_memory=True) for rank in lost]


def _ending(task: WorkerJob, workers_log: WorkersLog, group: Ranks) -> Ending:
    return Ending(
        ranks=task.options.world_size,
        own=task.own_ranks,
        of_a_node=task.options.ranks if task.options.nnodes > 1 else 0,
        statuses=workers_log.statuses,
        doings=doings(task.own),
        codes=dict(group.codes),
        tail=workers_log.tail,
    )


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


@contextmanager
def stop_requests(on_each: Callable[[bool], None] = lambda is_first: None) -> Iterator[list[float]]:
    """While inside, SIGTERM, SIGHUP and Ctrl-C are noted and not obeyed at once.

    An error that ends the inside after one is not followed by another try: who asked waits for this process
    to end, and kills it in the end.

    Args:
        on_each: called at each request, with whether it is the first; an exception in it could end the
            stage anywhere.

    Yields:
        A list that holds the time of the first request, once there was one.
    """
    asked: list[float] = []

    def stop(signum: int, frame: FrameType | None) -> None:
        is_first = not asked
        if is_first:
            asked.append(time.monotonic())
        on_each(is_first)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # a terminal that is gone; nohup ignores it
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, stop)
    try:
        yield asked
    except BaseException:
        if asked:
            waiting.hurry()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
