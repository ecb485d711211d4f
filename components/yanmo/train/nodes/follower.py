"""A node other than 0: comes to node 0, starts its ranks when it is told to, and ends as node 0 does.

It takes no lease and commits nothing. Its supervisor watches its own ranks (their heartbeats are files of
this machine), serves their figures on /metrics, and passes on to node 0 how they end and that it was itself
asked to stop. Node 0's fate is its own: where it is gone, the ranks here are ended, and this node ends
with 75.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from yanmo.common.errors import EnvironmentFault, ExitCode, advice, exit_code
from yanmo.common.json_object import read_object
from yanmo.formats.token_cache import TokenCache
from yanmo.store.manifest import Reference
from yanmo.store.runs.fatal_record import Ended
from yanmo.store.runs.work_folder import WorkFolder
from yanmo.train.backends.hardware import this_machine
from yanmo.train.config import TrainConfig
from yanmo.train.health.stacks import Requests
from yanmo.train.health.watchdog import doings
from yanmo.train.job import WorkerJob, clear
from yanmo.train.memory.cgroup import MemoryGroup
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.nodes.leader import place_of
from yanmo.train.nodes.meeting import Meeting, Over, is_committed, is_made
from yanmo.train.nodes.outcome import Outcome
from yanmo.train.nodes.still_there import asking
from yanmo.train.nodes.wire import Message, NodeLost, Wire, interface_of
from yanmo.train.options.nodes_options import longest_silence
from yanmo.train.supervision.automatic import TrainRun, check_machine
from yanmo.train.supervision.ending import RankLook
from yanmo.train.supervision.stop_requests import stop_requests
from yanmo.train.supervision.worker_group import Frozen, WorkersLog, start, watch

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1
_SHOWN_SECONDS = 1.0
_SHARED_SECONDS = 10.0
"""How long a shared folder may take to show what node 0 has written."""


class _ToldToEnd(Exception):
    """Node 0 ends this window."""


def follow(run: TrainRun) -> Ended | None:
    """Train as a node other than 0 until node 0 is done; how this one ends, None for well.

    Raises:
        NodeLost: node 0 cannot be reached, or is gone, and the model is not committed.
        Exception: one with the exit code that node 0 ends with.
    """
    with stop_requests() as asked:  # for node 0, which has all nodes save
        try:
            wire = Meeting(run, asked).wire()
        except Over as over:
            return over.ended
        try:
            with asking(wire, run.options.meeting_point()):
                return Follower(run, wire, asked).follow()
        except Exception as error:
            if isinstance(error, NodeLost) and is_committed(run):
                log.info("the model is committed, though node 0 did not say so")
                return None
            if asked and exit_code(error) == ExitCode.RETRY:  # not tried again in a pod that is to end
                return Ended(int(ExitCode.RETRY), advice(error))
            raise
        finally:
            wire.close()


class Follower:
    """This node, connected to node 0."""

    def __init__(self, run: TrainRun, wire: Wire, asked: list[float]) -> None:
        """Args:
        asked: holds the time of a request to this process to stop, once there was one.
        """
        self._run, self._wire, self._asked = run, wire, asked
        self._options: TrainConfig = run.options
        self._told = False
        self._outcome: Outcome | None = None
        self._stopping: list[float] = []
        self._window_number = 0
        self._works: dict[Path, WorkFolder] = {}
        self._gauges: dict[Path, MetricsGauges] = {}

    def follow(self) -> Ended:
        """See `follow`."""
        log.info("node %d of %d, with node 0", self._options.node_rank, self._options.nnodes)
        try:
            self._get_ready()
            while self._outcome is None:
                message = self._next()
                if message["kind"] == "start":
                    self._window(message)
        except NodeLost:
            raise
        except Exception as error:
            if self._outcome is None:
                self._wire.send("failed", code=int(exit_code(error)), message=advice(error))
            raise
        ended = self._outcome.follow(lambda: is_made(self._run))
        for work in self._works.values():
            if not work.is_in_store and not self._outcome.is_pause:
                shutil.rmtree(work.path, ignore_errors=True)  # the model is committed
        return ended

    def _next(self) -> Message:
        """What node 0 says next."""
        while True:
            message = self._take()
            if message or self._outcome:
                return message or {"kind": "outcome"}
            time.sleep(_POLL_SECONDS)

    def _take(self) -> Message | None:
        """What node 0 has said, if anything.

        Raises:
            NodeLost: it is gone.
        """
        if self._asked and not self._told:
            self._told = True
            log.info("asked to stop: all nodes save after this step")
            self._wire.send("stop")
        message = self._wire.take()
        if message is None:
            if self._wire.is_over:
                raise NodeLost(f"node 0 at {self._options.rendezvous} is gone: its connection was closed")
            limit = longest_silence(self._options.standstill_seconds)
            if self._wire.silent() > limit:
                raise NodeLost(
                    f"node 0 at {self._options.rendezvous} has given no sign of life for {limit:.0f} s"
                )
        elif message["kind"] == "outcome":
            self._outcome = Outcome.from_message(message)
        return message

    def _get_ready(self) -> None:
        """Bring the inputs onto this machine: else ranks would wait for the slowest in a collective."""
        check_machine(self._run, this_machine)
        TokenCache.open(self._run.input("token_cache"))
        model = self._run.inputs["model"]
        if model is not None:
            model.paths("*")
        self._wire.send("ready")

    def _window(self, message: Message) -> None:
        """Start the ranks, and tell node 0 how they end."""
        self._run.telemetry.state("working")
        self._window_number = int(message["window"])
        task = self._task(message)
        first, options = task.place.first_rank if task.place else 0, task.options
        gauges = self._gauges.get(task.own) or MetricsGauges(self._run.telemetry, task.own)
        self._gauges[task.own] = gauges
        gauges.starting(options.ranks, options.steps, node=options.node_rank, nodes=options.nnodes)
        clear(task.own)
        self._stopping.clear()
        memory = MemoryGroup()
        killed_before = memory.kills()
        group = start(options, task.write(), task.place)
        workers_log = WorkersLog(group, task.own / "workers.log")
        workers_log.start()
        looks: Mapping[int, RankLook] = {}
        frozen: Frozen | None = None
        try:
            with Requests().heard() as requests:

                def look() -> None:
                    gauges.show(_SHOWN_SECONDS)
                    requests.serve(task.own)
                    self._pass_on(workers_log)

                looks = watch(
                    group,
                    workers_log,
                    task.own,
                    ranks=options.ranks,
                    hang_seconds=options.hang_seconds,
                    silence_seconds=task.place.silence_seconds if task.place else 0.0,
                    stopping=self._stopping,
                    each_time=look,
                    first_rank=first,
                )
        except _ToldToEnd:
            pass
        except Frozen as error:
            frozen, looks = error, error.looks
        finally:
            group.end()
        workers_log.wait()
        statuses = {status.rank: status.state for status in workers_log.statuses}
        gauges.ended(well=len(statuses) == options.ranks and "failed" not in statuses.values())
        self._send_statuses(workers_log)
        mine = range(first, first + options.ranks)
        lost = [rank for rank in mine if rank not in statuses]
        self._wire.send(
            "ended",
            window=self._window_number,
            codes=dict(group.codes),
            looks={rank: (look.state, look.answers) for rank, look in looks.items()},
            doings=doings(task.own),
            said=workers_log.said,
            killed=lost if memory.kills() > killed_before else [],
            tail=workers_log.tail[-4000:],
            frozen=str(frozen) if frozen else "",
            rank=frozen.rank if frozen else None,
        )

    def _pass_on(self, workers_log: WorkersLog) -> None:
        """Send node 0 what the ranks have said; do what it says."""
        self._send_statuses(workers_log)
        message = self._take()
        if message is None:
            return
        if message["kind"] == "stopping" and not self._stopping:
            self._stopping.append(time.monotonic())
        elif message["kind"] in ("end", "outcome"):
            raise _ToldToEnd

    def _send_statuses(self, workers_log: WorkersLog) -> None:
        """Send node 0 what is new of how the ranks ended."""
        while workers_log.statuses_sent < len(workers_log.statuses):
            status = workers_log.statuses[workers_log.statuses_sent]
            workers_log.statuses_sent += 1
            self._wire.send("status", window=self._window_number, status=dataclasses.asdict(status))

    def _task(self, message: Message) -> WorkerJob:
        """This node's part of node 0's job.

        Raises:
            EnvironmentFault: the folder of the store is not the same on both nodes.
        """
        given = message["job"]
        options = TrainConfig(**{**vars(self._options), **given["options"]})
        work = WorkFolder(self._run.store, message["work"])
        self._works[work.path] = work
        host, port = self._options.meeting_point()[0], int(message["port"])
        interface = interface_of(self._wire.here)
        parts = str(message["parts"])
        place = place_of(options, host, port, interface, parts)
        if work.is_in_store:
            self._check_shared(work, parts)
        return WorkerJob(
            options=options,
            store=self._run.store.uri,
            token_cache=Reference(**given["token_cache"]),
            model=Reference(**given["model"]) if given["model"] else None,
            folder=work.path,
            place=place,
            **{name: given[name] for name in ("ends_at", "then", "reason", "note")},
        )

    def _check_shared(self, work: WorkFolder, parts: str) -> None:
        """Wait until the job that node 0 has written into the folder of the store is seen here.

        Raises:
            EnvironmentFault: it is not: the folder is another one.
        """
        until = time.monotonic() + _SHARED_SECONDS
        while _parts_in(work) != parts:
            if time.monotonic() > until:
                raise EnvironmentFault(
                    f"{work.path}: node {self._options.node_rank} does not see what node 0 writes there; "
                    "--store has to be one folder that all nodes share (NFS, a shared volume), or s3://"
                )
            time.sleep(_POLL_SECONDS)


def _parts_in(work: WorkFolder) -> str:
    """What node 0's job of this start alone holds; "" where it cannot be seen."""
    try:
        return str(read_object(work.path / "job.json")["place"]["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
