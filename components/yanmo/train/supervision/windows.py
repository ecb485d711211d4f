"""The workers of a training, one time window after another: started, watched, paused, started again.

They are started again where the window changes (--night) and, with half the rows at a time, where a micro
batch did not fit.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from yanmo.common.errors import EnvironmentFault
from yanmo.store.pause import Pause
from yanmo.store.runs.failure_card import Details, attach, details_of
from yanmo.train import job
from yanmo.train.checkpoints.uploader import Uploader
from yanmo.train.health.stacks import Requests
from yanmo.train.health.watchdog import doings
from yanmo.train.job import Status, WorkerJob, clear
from yanmo.train.memory.estimate import divisors
from yanmo.train.memory.killed import KillWatch
from yanmo.train.memory.micro_batch import halve_micro_batch, largest_micro_batch
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.nodes.leader import Leader
from yanmo.train.nodes.node import NodeEnd
from yanmo.train.supervision.ending import Ending, RankLook, of_frozen, of_memory, raise_failure
from yanmo.train.supervision.power import power_limit
from yanmo.train.supervision.ranks import Ranks
from yanmo.train.supervision.stop_requests import stop_requests
from yanmo.train.supervision.worker_group import FOLLOW_SECONDS, Frozen, WorkersLog, start, watch
from yanmo.train.time_window import TimeWindow, TimeWindows

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
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
        others: the other nodes, of several.

    Raises:
        Exception: the error that ended a worker, so that the stage has its exit code.
    """
    with _stop_file(task.folder / job.STOP) as stopping, Requests().heard() as requests:
        while True:
            clear(task.folder)
            window = windows.current()
            if others and not (stopping or windows.is_over):
                others.gather(stopping)
                window = windows.current()
            if stopping or (window.ends_at <= time.time() and window.then == "paused"):
                return _pause(task, _saved_step(task.folder), window, stopping)
            try:
                statuses = _one_window(
                    _for_window(task, window), gauges, uploader, stopping, requests, memory, others
                )
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
    why = window.reason if is_planned else f"asked to stop by a signal{' to a rank' * (not stopping)}"
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
        if others:
            workers_log.statuses += others.look(stopping, task.folder / job.STOP)

    options, ends = task.options, dict[int, NodeEnd]()
    gauges.starting(options.ranks, options.steps, options.checkpoint_seconds, nodes=options.nnodes)
    with power_limit(task.options.power_watts):
        task = others.begin(task, uploader.work_name) if others else task
        group = start(task.options, task.write(), task.place)
        workers_log = WorkersLog(group, task.folder / "workers.log")
        workers_log.start()
        looks: Mapping[int, RankLook] = {}
        try:
            with uploader:
                looks = watch(
                    group,
                    workers_log,
                    task.folder,
                    ranks=task.options.ranks,
                    hang_seconds=task.options.hang_seconds,
                    silence_seconds=task.place.silence_seconds if task.place else 0.0,
                    stopping=stopping,
                    each_time=look,
                )
                if others:
                    _wait_for(others, workers_log, look)
        except BaseException as error:
            gauges.ended(well=False)
            if isinstance(error, Frozen) and error.looks:
                of_frozen(_ending(task, workers_log, group, error.looks), error.rank, error)
            raise
        finally:
            group.end()
            ends = others.end(stopping) if others else ends
        workers_log.wait()
        if others:
            workers_log.statuses += others.look(stopping, task.folder / job.STOP)
    states = {status.rank: status.state for status in workers_log.statuses}
    gauges.ended(well=len(states) == task.options.world_size and "failed" not in states.values())
    full = [status for status in workers_log.statuses if status.out_of_memory]
    if memory and memory.kills() > killed_before:
        full += _killed(workers_log.statuses, range(task.options.ranks))
    for one in ends.values():
        full += _killed(workers_log.statuses, one.killed)
    return _outcome(task, _ending(task, workers_log, group, looks, ends), full, memory)


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


def _wait_for(others: Leader, workers_log: WorkersLog, look: Callable[[], None]) -> None:
    """Wait until the ranks of the other nodes have ended too: not long, where one of any node has failed."""
    began = time.monotonic()
    while not others.have_ended:
        failed = any(status.state == "failed" for status in workers_log.statuses)
        if failed and time.monotonic() - began > FOLLOW_SECONDS:
            return
        time.sleep(_POLL_SECONDS)
        look()


def _ending(
    task: WorkerJob,
    workers_log: WorkersLog,
    group: Ranks,
    looks: Mapping[int, RankLook],
    ends: Mapping[int, NodeEnd] | None = None,
) -> Ending:
    """What is known of how the workers ended.

    Args:
        ends: by node, how those of other nodes did.
    """
    found = Ending(
        ranks=task.options.world_size,
        of_a_node=task.options.ranks if task.options.nnodes > 1 else 0,
        statuses=workers_log.statuses,
        doings=doings(task.folder),
        codes=dict(group.codes),
        looks=looks,
        said=workers_log.said,
        tail=workers_log.tail,
    )
    for number, one in (ends or {}).items():
        found = dataclasses.replace(
            found,
            doings={**found.doings, **one.doings},
            codes={**found.codes, **one.codes},
            looks={**found.looks, **one.looks},
            said={**found.said, **one.said},
            tail=f"{found.tail}\nnode {number}:\n{one.tail}" if one.tail else found.tail,
        )
    return found


def _killed(statuses: list[Status], ranks: Iterable[int]) -> list[Status]:
    """The ranks that ended without a word, where the system killed processes of this container for memory."""
    lost = sorted(set(ranks) - {status.rank for status in statuses})
    message = "killed for lack of the container's memory"
    return [Status(rank, "failed", message=message, out_of_memory=True) for rank in lost]


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
