"""Node 0 of several, as the others see it: what it tells them in the store (record.py)."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import uuid
from collections.abc import Iterator

from yanmo.common.errors import EnvironmentFault
from yanmo.options.fields import by_kind
from yanmo.store.pause import Pause
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob
from yanmo.train.nodes.place import place_of
from yanmo.train.nodes.record import PARTS, End, NodesRecord
from yanmo.train.supervision.automatic import TrainRun

log = logging.getLogger(__name__)
OF_THE_WINDOW = ("ends_at", "then", "reason", "note")
"""Fields of a job that node 0 decides by its clock, and for all."""


class Leader:
    """What this node, 0 of several, has told the others."""

    def __init__(self, run: TrainRun) -> None:
        self._run = run
        self._record = NodesRecord.of(run.options, run.attempt.id)
        self._say()

    def begin(self, task: WorkerJob, work_name: str) -> WorkerJob:
        """Have all nodes start their ranks; the job, with the place of this node's ranks.

        Args:
            work_name: where the work lies in the store.
        """
        window = self._record.window + 1
        meeting = f"{self._record.attempt}/{window}"
        job = {
            "options": by_kind(task.options, "semantic", "execution"),
            "token_cache": vars(task.token_cache),
            "model": vars(task.model) if task.model else None,
            "work": work_name,
            "meeting": meeting,
            "parts": f"{work_name}/{PARTS}/{meeting}",
            **{name: getattr(task, name) for name in OF_THE_WINDOW},
        }
        self._record = dataclasses.replace(self._record, window=window, job=job)
        self._say()
        return dataclasses.replace(task, place=place_of(task.options, meeting, job["parts"]))

    def ends(self, end: End) -> None:
        """Tell how it ended; where that cannot be written, the lease that is given back says enough."""
        self._record = dataclasses.replace(self._record, end=end)
        try:
            self._say()
        except (OSError, EnvironmentFault) as error:
            log.warning("the other nodes are not told how this one ended: %s", error)

    def pauses(self, pause: Pause) -> None:
        """Tell that all has been saved."""
        self.ends(End.of_pause(pause))

    def _say(self) -> None:
        self._run.attempt.lease.check()  # what another run has written stays
        self._record.write(self._run.store, self._run.key)


@contextlib.contextmanager
def leading(run: TrainRun) -> Iterator[Leader | None]:
    """While inside, the other nodes are told what to train; None with one node.

    Raises:
        StorageError: they cannot be told.
    """
    if run.options.nnodes == 1:
        yield None
        return
    leader = Leader(run)
    try:
        yield leader
    except BaseException as error:
        leader.ends(End.of(error))
        raise


def tell_busy(run: TrainRun, why: str) -> None:
    """Tell the other nodes that nothing is trained, as another training of the channel is at work."""
    options: TrainConfig = run.options
    end = End(0, f"paused: {why}", is_pause=True)
    dataclasses.replace(NodesRecord.of(options, uuid.uuid4().hex[:12]), end=end).write(run.store, run.key)
