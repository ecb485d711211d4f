"""Node 0 of several, as its supervisor sees the others: they come to it, are compared, told what to do.

It listens at `--rendezvous` while the key is worked on. One window of the workers goes so:

    node 0                                    node 1
                                              hello: its number, versions, options, inputs
    welcome, or refused: why                  gets the inputs onto its disk
                                              ready
    start: options, hours, port               starts its ranks
                                              status of each rank; asked to stop
    stopping | end                            ends its ranks
                                              ended: how they looked
    outcome: exit code                        ends with it

The hours and the lease are looked at by node 0 alone, by its clock. Whether to stop, save or
rewind is agreed upon by the ranks after each step (loop.py): a node that is asked to stop tells node 0, which
tells rank 0.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
import time
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from yanmo.common.errors import EnvironmentFault
from yanmo.common.logs import human_seconds
from yanmo.options.fields import by_kind
from yanmo.train.config import TrainConfig
from yanmo.train.job import Place, Status, WorkerJob
from yanmo.train.nodes.identity import Identity
from yanmo.train.nodes.node import Node, NodeEnd
from yanmo.train.nodes.outcome import Outcome, error_of
from yanmo.train.nodes.parts import PARTS
from yanmo.train.nodes.reception import Reception
from yanmo.train.nodes.wire import Message, NodeLost, interface_of
from yanmo.train.options.nodes_options import longest_silence
from yanmo.train.supervision.ranks import LOOPBACK
from yanmo.train.supervision.worker_group import Frozen

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1
_SAY_SECONDS = 30.0
_FOLLOW_SECONDS = 15.0
"""How long other nodes may take to end after a rank failed, or after they were told to."""
_PORTS = 200
"""The ranks meet at the first free port of so many after that of the rendezvous."""


class Leader:
    """The other nodes."""

    def __init__(self, options: TrainConfig) -> None:
        self._options = options
        self._reception = Reception(options)
        self._statuses: list[Status] = []
        self._told_to_stop = False
        self._window = 0

    def listening(self, identity: Identity) -> AbstractContextManager[None]:
        """While inside, the other nodes may come; `close` says how it ended.

        Raises:
            EnvironmentFault: the port is taken, or is not one of this machine.
        """
        return self._reception.open(identity)

    @property
    def _nodes(self) -> dict[int, Node]:
        return self._reception.nodes

    def close(self, outcome: Outcome) -> None:
        """Tell the nodes how it ended."""
        self._reception.tell(outcome)

    def gather(self, stopping: list[float]) -> None:
        """Wait until all nodes are here and ready, or somebody asks to stop.

        Raises:
            NodeLost: some did not come within `--rendezvous-seconds`.
            Exception: one cannot train with this one, or cannot train at all; says why.
        """
        began, said = time.monotonic(), 0.0
        self._reception.in_window = False
        while True:
            self._take(stopping, began=False)
            if stopping:
                return
            wanted = range(1, self._options.nnodes)
            missing = [n for n in wanted if n not in self._nodes]
            unready = [n for n in wanted if n in self._nodes and not self._nodes[n].is_ready]
            if not missing and not unready:
                return
            waited, most = time.monotonic() - began, self._options.rendezvous_seconds
            if missing and waited > most:
                raise NodeLost(
                    f"{_named(missing)} of {self._options.nnodes} did not come to "
                    f"{self._options.rendezvous} within {human_seconds(most)} (--rendezvous-seconds): look "
                    "at its log, or start it; the same command tries again"
                )
            if waited - said > _SAY_SECONDS:
                said = waited
                what = f"{_named(missing)} to come to {self._options.rendezvous}" if missing else ""
                gets = f"{_named(unready)} to get the inputs" if unready else ""
                log.info(
                    "waiting for %s, for %s of at most %s",
                    " and ".join(filter(None, (what, gets))),
                    human_seconds(waited),
                    human_seconds(most),
                )
            time.sleep(_POLL_SECONDS)

    def begin(self, task: WorkerJob, work_name: str) -> WorkerJob:
        """Have all nodes start their ranks; the job of this node's, written to its file.

        Args:
            work_name: where the work lies in the store.
        """
        options, port = task.options, _free_port(self._options.meeting_point()[1])
        here = [node.wire.here for node in self._nodes.values()]
        parts = f"{work_name}/{PARTS}/{uuid.uuid4().hex[:12]}"
        place = place_of(options, LOOPBACK, port, interface_of(here[0]), parts)
        task = dataclasses.replace(task, place=place)
        task.write()  # before the others look for it
        self._told_to_stop, self._statuses, self._reception.in_window = False, [], True
        self._window += 1
        what = {
            "options": shared_options(options),
            "token_cache": vars(task.token_cache),
            "model": vars(task.model) if task.model else None,
            **{name: getattr(task, name) for name in ("ends_at", "then", "reason", "note")},
        }
        for node in self._nodes.values():
            node.end = None
            node.wire.send("start", window=self._window, job=what, work=work_name, port=port, parts=parts)
        return task

    def look(self, stopping: list[float], stop_file: Path) -> list[Status]:
        """What the ranks of other nodes have reported since the last call; call it a few times a second.

        Raises:
            NodeLost: a node is gone, or has given no sign of life for too long (`longest_silence`).
            Frozen: its supervisor had to end its ranks.
        """
        before = bool(stopping)
        self._take(stopping, began=True)
        if stopping and not before:
            stop_file.touch()
        if stopping and not self._told_to_stop:
            self._told_to_stop = True
            for node in self._nodes.values():
                node.wire.send("stopping")
        found, self._statuses = self._statuses, []
        return found

    @property
    def have_ended(self) -> bool:
        """Whether the ranks of all other nodes have ended."""
        return all(node.end for node in self._nodes.values())

    def end(self, stopping: list[float]) -> dict[int, NodeEnd]:
        """End the ranks that still run on other nodes; how those of each node ended, where it told."""
        for node in self._nodes.values():
            if node.end is None:
                node.wire.send("end")
        until = time.monotonic() + _FOLLOW_SECONDS
        while not all(n.end or n.wire.is_over for n in self._nodes.values()) and time.monotonic() < until:
            for number, node in self._nodes.items():
                while message := node.wire.take():
                    with contextlib.suppress(Exception):  # another error has ended the window already
                        self._note(number, node, message, stopping)
            time.sleep(_POLL_SECONDS)
        return {number: node.end for number, node in self._nodes.items() if node.end}

    def _take(self, stopping: list[float], *, began: bool) -> None:
        """Take in what the nodes have sent.

        Args:
            began: whether the training has: before, a node that is gone may come again.
        """
        if self._reception.refusal:
            raise self._reception.refusal
        with self._reception.lock:
            nodes = list(self._nodes.items())
        for number, node in nodes:
            while message := node.wire.take():
                self._note(number, node, message, stopping)
            lost = self._lost(node)
            if lost and not began:
                log.warning("node %d at %s %s; waiting for it to come again", number, node.wire.peer, lost)
                with self._reception.lock:
                    del self._nodes[number]
                node.wire.close()
            elif lost:
                raise NodeLost(
                    f"node {number} of {self._options.nnodes}, at {node.wire.peer}, {lost}; run the same "
                    "command again on all nodes to go on from the last checkpoint"
                )

    def _lost(self, node: Node) -> str:
        if node.wire.is_over:
            return "is gone: its connection was closed"
        limit = longest_silence(self._options.standstill_seconds)
        if node.wire.silent() > limit:
            return f"has given no sign of life for {limit:.0f} s"
        return ""

    def _note(self, number: int, node: Node, message: Message, stopping: list[float]) -> None:
        """Take in a message.

        Raises:
            Exception: the error that ended the node, or its ranks.
        """
        kind = message["kind"]
        if kind in ("status", "ended") and message.get("window") != self._window:
            return  # of ranks that were ended before these began
        error: Exception | None = None
        try:
            if kind == "ready":
                node.is_ready = True
            elif kind == "stop":
                if not stopping:
                    stopping.append(time.monotonic())
                    log.info("node %d was asked to stop: all save after this step", number)
            elif kind == "status":
                # The clock of another machine may be wrong, and the first rank that failed counts.
                self._statuses.append(Status(**{**message["status"], "time": time.time()}))
            elif kind == "failed":
                error = error_of(int(message["code"]), f"node {number}: {message['message']}")
            elif kind == "ended":
                node.end = NodeEnd.from_message(message)
                if message.get("frozen"):
                    error = frozen = Frozen(f"node {number}: {message['frozen']}")
                    frozen.looks, frozen.rank = node.end.looks, message.get("rank")
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as wrong:
            raise NodeLost(f"node {number} sent what cannot be read ({kind}: {wrong})") from wrong
        if error:
            raise error


def place_of(options: TrainConfig, address: str, port: int, interface: str, parts: str) -> Place:
    """Where the ranks of the node stand that has these options; see `Place`."""
    limit = options.standstill_seconds if options.hang_seconds else 0.0
    return Place(
        node=options.node_rank,
        nnodes=options.nnodes,
        ranks=options.ranks,
        address=address,
        port=port,
        interface=interface,
        parts=parts,
        step_seconds=min(options.hang_seconds, limit),
        silence_seconds=longest_silence(limit),
    )


def shared_options(options: TrainConfig) -> dict[str, Any]:
    """Those that are the same on all nodes; no other one travels: it may hold a password."""
    limits = ("hang_seconds", "standstill_seconds")
    return {**by_kind(options, "semantic", "execution"), **{name: getattr(options, name) for name in limits}}


def _named(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10])) + (" ..." if len(numbers) > 10 else "")
    return f"node{'s' * (len(numbers) > 1)} {shown}"


def _free_port(after: int) -> int:
    """A port on which nobody listens, near that of the rendezvous; the same for all that look at once."""
    for port in range(after + 1, after + 1 + _PORTS):
        if port > 65535:
            break
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise EnvironmentFault(
        f"none of the {_PORTS} ports after {after} is free: give all nodes another --rendezvous"
    )
