"""The ranks of this node, started once: from their start to how they ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from yanmo.train.health.watchdog import BEFORE_OTHERS, doings
from yanmo.train.job import Status, WorkerJob
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.supervision.ending import Ending, RankLook, of_frozen
from yanmo.train.supervision.ranks import Ranks
from yanmo.train.supervision.worker_group import Frozen, WorkersLog, start, watch

_DOING_SECONDS = 3.0
"""After so long a rank has written down what it was doing."""


class Unbegun(Exception):
    """This process is asked to stop, and its ranks still wait for those of other nodes."""


def run_ranks(
    task: WorkerJob, gauges: MetricsGauges, stopping: Sequence[float], each_time: Callable[[], None]
) -> Ending:
    """Run the ranks of this node until they have ended.

    Args:
        stopping: holds the time of a request to stop, once there was one.
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

    gauges.starting(
        options.ranks,
        options.steps,
        0.0 if place and place.node else options.checkpoint_seconds,
        node=place.node if place else 0,
        nodes=options.nnodes,
    )
    group = start(options, task.write(), place)
    workers_log = WorkersLog(group, task.own / "workers.log")
    workers_log.start()
    looks: Mapping[int, RankLook] = {}
    try:
        looks = watch(
            group,
            workers_log,
            task.own,
            ranks=options.ranks,
            hang_seconds=options.hang_seconds,
            silence_seconds=place.silence_seconds if place else 0.0,
            stopping=stopping,
            each_time=look,
            first_rank=task.own_ranks[0],
        )
    except BaseException as error:
        gauges.ended(well=False)
        if isinstance(error, Frozen) and error.looks:
            of_frozen(_ending(task, workers_log, group, error.looks), error.rank, error)
        raise
    finally:
        group.end()
    workers_log.wait()
    states = {status.rank: status.state for status in workers_log.statuses}
    gauges.ended(well=len(states) == options.ranks and "failed" not in states.values())
    return _ending(task, workers_log, group, looks)


def full_ranks(ending: Ending, *, was_killed: bool) -> list[Status]:
    """The ranks that lacked memory.

    Args:
        was_killed: whether the system killed processes of this container for it meanwhile.
    """
    full = [status for status in ending.statuses if status.out_of_memory]
    return full + _killed(ending.statuses, ending.own) if was_killed else full


def _ending(task: WorkerJob, workers_log: WorkersLog, group: Ranks, looks: Mapping[int, RankLook]) -> Ending:
    return Ending(
        ranks=task.options.world_size,
        own=task.own_ranks,
        of_a_node=task.options.ranks if task.options.nnodes > 1 else 0,
        statuses=workers_log.statuses,
        doings=doings(task.own),
        codes=dict(group.codes),
        looks=looks,
        said=workers_log.said,
        tail=workers_log.tail,
    )


def _killed(statuses: Sequence[Status], ranks: Iterable[int]) -> list[Status]:
    """The ranks that ended without a word, where the system killed processes of this container for memory."""
    lost = sorted(set(ranks) - {status.rank for status in statuses})
    message = "killed for lack of the container's memory"
    return [Status(rank, "failed", message=message, out_of_memory=True) for rank in lost]
