"""How another node comes to node 0: it connects, says who it is, and waits until it is welcomed.

Node 0 may not be there yet, may be ending an earlier try, or be behind something that accepts connections
before it is (a proxy, a service mesh). So a connection that closes before a welcome is one more reason to
wait, as one that is refused; only node 0's own words end the wait before `--rendezvous-seconds`.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
import time

from yanmo.common.errors import ExitCode
from yanmo.common.logs import human_seconds
from yanmo.store.commit import find_whole
from yanmo.store.runs.fatal_record import Ended
from yanmo.train.config import TrainConfig
from yanmo.train.nodes.identity import Identity
from yanmo.train.nodes.outcome import Outcome
from yanmo.train.nodes.reception import PROTOCOL
from yanmo.train.nodes.wire import NodeLost, Wire
from yanmo.train.options.nodes_options import longest_silence
from yanmo.train.supervision.automatic import TrainRun

log = logging.getLogger(__name__)
_POLL_SECONDS, _AGAIN_SECONDS, _CONNECT_SECONDS = 0.1, 1.0, 5.0
_LOOK_SECONDS = 10.0
"""How often it is looked meanwhile whether the model is committed."""
_SAY_SECONDS = 30.0


class Over(Exception):
    """There is nothing to do for this node any more."""

    def __init__(self, ended: Ended | None = None) -> None:
        """Args:
        ended: how it ends; None for well.
        """
        super().__init__("nothing to do")
        self.ended = ended


def is_made(run: TrainRun) -> bool:
    """Whether the model is in the store."""
    return find_whole(run.store, run.stage.name, run.key) is not None


def is_committed(run: TrainRun) -> bool:
    """Whether the model is there, and nothing asks for another one."""
    return not run.options.force and is_made(run)


class Meeting:
    """The way to node 0."""

    def __init__(self, run: TrainRun, asked: list[float]) -> None:
        """Args:
        asked: holds the time of a request to this process to stop, once there was one.
        """
        self._run, self._asked = run, asked
        self._options: TrainConfig = run.options
        self._identity = dataclasses.asdict(Identity.of(run))
        self._began = self._looked = time.monotonic()
        self._said = self._began - _SAY_SECONDS + _CONNECT_SECONDS

    def wire(self) -> Wire:
        """The connection to node 0, which has welcomed this node.

        Raises:
            Over: node 0 has just ended, the model was committed meanwhile, or this node was asked to stop.
            NodeLost: it did not within `--rendezvous-seconds`.
            Exception: it refuses this node, and says why.
        """
        where = self._options.meeting_point()
        while True:
            try:
                wire = Wire(socket.create_connection(where, _CONNECT_SECONDS))
            except OSError as error:
                self._wait(error.strerror or str(error))
            else:
                welcomed = False
                try:
                    welcomed = self._is_welcome(wire)
                finally:
                    if not welcomed:
                        wire.close()
                if welcomed:
                    return wire
                self._wait("it closed the connection before it answered")
            time.sleep(_AGAIN_SECONDS)

    def _is_welcome(self, wire: Wire) -> bool:
        """Whether node 0 welcomes this node; False where the connection is closed or silent."""
        number, limit = self._options.node_rank, longest_silence(self._options.standstill_seconds)
        wire.send("hello", protocol=PROTOCOL, node=number, identity=self._identity)
        while not wire.is_over and wire.silent() <= limit:
            message = wire.take() or {"kind": ""}
            if message["kind"] == "welcome":
                wire.token = str(message.get("token", ""))
                return True
            if message["kind"] in ("refused", "outcome"):
                raise Over(Outcome.from_message(message).follow(lambda: is_made(self._run)))
            self._wait("it has not answered")
            time.sleep(_POLL_SECONDS)
        return False

    def _wait(self, why: str) -> None:
        """See whether there is still something to wait for, and say now and then what.

        Raises:
            As `wire`.
        """
        options, now = self._options, time.monotonic()
        waited, most = now - self._began, options.rendezvous_seconds
        if self._asked:
            raise Over(Ended(int(ExitCode.RETRY), "asked to stop by a signal, while node 0 was waited for"))
        if waited > most:
            raise NodeLost(
                f"node 0 did not answer at {options.rendezvous} for {human_seconds(most)} "
                f"(--rendezvous-seconds; {why}): start it, or correct --rendezvous (PET_MASTER_ADDR, "
                "PET_MASTER_PORT)"
            )
        if now - self._said > _SAY_SECONDS:
            self._said = now
            shown = human_seconds(waited), human_seconds(most)
            log.info("waiting for node 0 at %s, for %s of at most %s: %s", options.rendezvous, *shown, why)
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            if is_committed(self._run):
                log.info("the model is committed; nothing is left to do")
                raise Over
