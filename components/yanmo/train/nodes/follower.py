"""A node other than 0: starts its ranks when node 0 says what to train, and ends as node 0 does.

It takes no lease and commits nothing. What node 0 says, it says in the store (record.py), and whether the
model is committed is asked there too: nothing that answers at the rendezvous is believed. Its supervisor
watches its own ranks (their heartbeats are files of this machine) and serves their figures on /metrics.
"""

from __future__ import annotations

import logging
import shutil
import time
from pathlib import Path

from yanmo.common.errors import EnvironmentFault, ExitCode, WorkerLost
from yanmo.common.logs import human_seconds
from yanmo.formats.token_cache import TokenCache
from yanmo.options.fields import by_kind
from yanmo.stage.stage_run import Ended
from yanmo.store.commit import find_whole
from yanmo.store.manifest import Reference
from yanmo.store.runs.work_folder import WorkFolder
from yanmo.train import job
from yanmo.train.backends.hardware import memory_kills, this_machine
from yanmo.train.config import TrainConfig
from yanmo.train.health.watchdog import BEFORE_OTHERS, doings
from yanmo.train.job import WorkerJob, forget_earlier_start
from yanmo.train.memory.fitting import halve_micro_batch
from yanmo.train.metrics.gauges import MetricsGauges
from yanmo.train.nodes.leader import OF_A_START, place_of
from yanmo.train.nodes.record import End, NodesRecord, is_at_work, read_nodes_record
from yanmo.train.supervision.ending import Ending, raise_failure
from yanmo.train.supervision.machine_check import TrainRun, check_machine
from yanmo.train.supervision.ranks import Unbegun, full_ranks, run_ranks
from yanmo.train.time_window import stop_requests

log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
"""How often NODES.json is read while no ranks run here."""
_LOOK_TRAINING_SECONDS = 5.0
_SHOWN_SECONDS = 1.0
_SAY_SECONDS = 30.0
_GONE_SECONDS = 5.0
"""How long node 0's lease may be given back before what it has said or committed is seen."""
_WORDS_SECONDS = 15.0
"""How long node 0 may take to say why it ended, once its ranks are gone."""


class _Otherwise(Exception):
    """Node 0 has ended this window, or has begun another one."""


class _AskedToStop(Exception):
    """This process is to end."""


def follow(run: TrainRun) -> Ended | None:
    """Train as a node other than 0 until node 0 is done; how this one ends, None for well.

    Raises:
        WorkerLost: node 0 does not come, or is gone, and the model is not committed.
        Exception: one with the exit code that node 0 ends with.
    """
    follower: Follower | None = None

    def note(is_first: bool) -> None:
        if follower and follower.stop_file:
            follower.touch_stop_file()

    with stop_requests(note) as asked:  # the ranks of all nodes save after the same step
        follower = Follower(run, asked)
        try:
            return follower.follow()
        except _AskedToStop as reason:
            return Ended(int(ExitCode.RETRY), f"asked to stop by a signal, {reason}")


class Follower:
    """This node."""

    def __init__(self, run: TrainRun, asked: list[float]) -> None:
        """Args:
        asked: holds the time of a request to this process to stop, once there was one.
        """
        self._run, self._asked = run, asked
        self._options: TrainConfig = run.options
        self._here = NodesRecord.of(run.options, "")
        self._over = ""
        """An attempt that was over when this node came."""
        self._attempt = ""
        """The one that this node has trained with."""
        self._done = ("", 0)
        """Attempt and window that the ranks here have ended."""
        self._works: dict[Path, WorkFolder] = {}
        self._gauges: dict[Path, MetricsGauges] = {}
        self.stop_file: Path | None = None
        """What asks the ranks that run here to save and end."""

    def follow(self) -> Ended | None:
        """See `follow`."""
        log.info("node %d of %d", self._options.node_rank, self._options.nnodes)
        self._get_ready()
        record = read_nodes_record(self._run.store, self._run.key)
        self._over = record.attempt if record and record.end else ""
        while True:
            record = self._next()
            if record is None:
                self._forget()
                log.info("the model is committed")
                return None
            if record.end:
                return self._as_node_0(record.end)
            self._train(record)

    def touch_stop_file(self) -> None:
        """Ask the ranks here to save and end, as a handler of a signal does: raises nothing."""
        try:
            if self.stop_file:
                self.stop_file.touch()
        except OSError as error:
            log.warning("%s cannot be written (%s): the workers end without saving", self.stop_file, error)

    def _get_ready(self) -> None:
        """Bring the inputs onto this machine: else ranks would wait for the slowest in a collective."""
        check_machine(self._run, this_machine)
        TokenCache.open(self._run.input("token_cache"))
        model = self._run.inputs["model"]
        if model is not None:
            model.paths("*")

    def _next(self) -> NodesRecord | None:
        """Return what node 0 says that is new: a window, or its end; None once the model is committed.

        Raises:
            WorkerLost: it says nothing within `--rendezvous-seconds`, or is gone.
            Exception: this node cannot train with it; says why.
        """
        began = time.monotonic()
        said, gone_since = began, 0.0
        while True:
            if self._is_committed():
                return None
            record = read_nodes_record(self._run.store, self._run.key)
            if record is not None and record.attempt != self._over:
                if record.end:
                    return record
                if is_at_work(self._run.store, self._run.key, record.attempt):
                    refusal = record.refusal(self._options.node_rank, self._here)
                    if refusal:
                        raise refusal
                    if record.job and (record.attempt, record.window) != self._done:
                        return record
                    began, gone_since = time.monotonic(), 0.0
                elif record.attempt == self._attempt:
                    now = time.monotonic()
                    gone_since = gone_since or now
                    if now - gone_since > _GONE_SECONDS:
                        raise WorkerLost(
                            "node 0 is gone: it holds the lease of the key no longer, and the model is not "
                            "committed; run the same command again on all nodes"
                        )
            if self._asked:
                raise _AskedToStop("while node 0 was waited for")
            said = self._wait_longer(began, said)
            time.sleep(_LOOK_SECONDS)

    def _wait_longer(self, began: float, said: float) -> float:
        """Say now and then what is waited for; when it was said last.

        Raises:
            WorkerLost: it was waited for too long.
        """
        options, now = self._options, time.monotonic()
        most, where = options.rendezvous_seconds, f"{self._run.store.uri}: train/{self._run.key[:12]}"
        if now - began > most:
            raise WorkerLost(
                f"no node 0 trains {where} after {human_seconds(most)} (--rendezvous-seconds): start it; its "
                "log names what it makes, which is the same with the same options and inputs, and --store "
                "has to be one that all nodes share (s3://, NFS, a shared volume)"
            )
        if now - said < _SAY_SECONDS:
            return said
        log.info("waiting for node 0 to train %s, for %s at most", where, human_seconds(most))
        return now

    def _is_committed(self) -> bool:
        """Return whether the model is in the store: with --force, that of the attempt trained here."""
        found = find_whole(self._run.store, self._run.stage.name, self._run.key)
        return found is not None and (not self._options.force or found.manifest.attempt == self._attempt)

    def _train(self, record: NodesRecord) -> None:
        """Start the ranks, and see how they end.

        Raises:
            Exception: what ended them.
        """
        self._run.telemetry.state("working")
        self._attempt = record.attempt
        task = self._task(record)
        options = task.options
        gauges = self._gauges.get(task.own) or MetricsGauges(self._run.telemetry, task.own)
        self._gauges[task.own] = gauges
        forget_earlier_start(task.own)
        self.stop_file = task.own / job.STOP
        if self._asked:
            self.touch_stop_file()
        killed_before, looked, waited = memory_kills(), time.monotonic(), False

        def look() -> None:
            nonlocal looked, waited
            gauges.show(_SHOWN_SECONDS)
            if time.monotonic() - looked > _LOOK_TRAINING_SECONDS:
                now = self._record_if_readable()
                looked = time.monotonic()
                waited_before = waited  # once is not enough: what a rank does is written down a second late
                waited = all(doing in BEFORE_OTHERS for doing in doings(task.own).values())
                if now and waited_before and waited and not self._is_node_0_there(record):
                    self._attempt = ""  # it may come again, and the ranks here have done nothing
                    raise _Otherwise
                if now and (now.end or (now.attempt, now.window) != (record.attempt, record.window)):
                    raise _Otherwise

        try:
            ending = run_ranks(task, gauges, self._asked, look)
        except _Otherwise:
            return
        except Unbegun as reason:
            raise _AskedToStop(str(reason)) from None
        finally:
            self.stop_file = None
        self._done = (record.attempt, record.window)
        full = full_ranks(ending, was_killed=memory_kills() > killed_before)
        if full:
            rows = halve_micro_batch(task, full[0])
            if self._works[task.folder].is_in_store:
                raise WorkerLost(f"rank {full[0].rank} lacked memory; all nodes go on with {rows} rows")
            raise EnvironmentFault(
                f"rank {full[0].rank} lacked memory with a micro batch of {options.micro_rows} rows: give "
                f"all nodes --micro-batch {rows}"
            )
        self._check(ending)

    def _record_if_readable(self) -> NodesRecord | None:
        """Return what node 0 says while ranks run here; a store that does not answer now ends no training."""
        try:
            return read_nodes_record(self._run.store, self._run.key)
        except (OSError, EnvironmentFault) as error:
            log.warning("what node 0 says cannot be read now: %s", error)
            return None

    def _is_node_0_there(self, record: NodesRecord) -> bool:
        """Return whether node 0 holds the lease still, as far as that can be known now."""
        try:
            return is_at_work(self._run.store, self._run.key, record.attempt)
        except (OSError, EnvironmentFault):
            return True

    def _check(self, ending: Ending) -> None:
        """Raise what ended the ranks; where they only lost those of other nodes, node 0 may know more."""
        failed = [status for status in ending.statuses if status.state == "failed"]
        if failed and self._is_committed():
            return
        if failed and all(status.follows for status in failed):
            if all(status.doing in BEFORE_OTHERS for status in failed):  # as they say, not a second old
                log.info("node 0 is gone before all nodes had come; waiting for it to come again")
                self._attempt = ""
                return
            log.warning("the ranks here lost those of another node; looking what node 0 says")
            until = time.monotonic() + _WORDS_SECONDS
            while time.monotonic() < until and not self._asked:
                record = read_nodes_record(self._run.store, self._run.key)
                if record and (record.end or record.attempt != self._attempt):
                    return  # `_next` reads it again
                time.sleep(_LOOK_SECONDS)
        raise_failure(ending)
        paused = [status for status in ending.statuses if status.state == "paused"]
        if paused and self._asked:
            raise _AskedToStop(f"saved at step {paused[0].step} of {self._options.steps}")

    def _as_node_0(self, end: End) -> Ended | None:
        """End with node 0's code.

        Raises:
            Exception: an error has ended it.
        """
        if end.code and not end.is_pause:
            raise end.error
        log.info("node 0: %s", end.message)
        return Ended(end.code, f"node 0: {end.message}") if end.code else None

    def _forget(self) -> None:
        """Remove the working files of a training that is committed, where they are this node's own."""
        for work in self._works.values():
            if not work.is_in_store:
                shutil.rmtree(work.path, ignore_errors=True)

    def _task(self, record: NodesRecord) -> WorkerJob:
        """This node's part of node 0's job: its settings, but for paths and limits, which are this node's."""
        given = record.job
        shared = by_kind(self._options, "semantic", "execution")
        settings = {name: value for name, value in given["options"].items() if name in shared}
        options = TrainConfig(**{**vars(self._options), **settings})
        work = WorkFolder(self._run.store, str(given["work"]))
        self._works[work.path] = work
        return WorkerJob(
            options=options,
            store=self._run.store.uri,
            token_cache=Reference(**given["token_cache"]),
            model=Reference(**given["model"]) if given["model"] else None,
            folder=work.path,
            place=place_of(options, str(given["meeting"]), str(given["parts"])),
            **{name: given[name] for name in OF_A_START},
        )
