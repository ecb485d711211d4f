"""Where the other nodes come to node 0: each says who it is, and is welcomed or refused by name."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from yanmo.common.errors import EnvironmentFault, UsageError
from yanmo.train.config import TrainConfig
from yanmo.train.nodes.identity import Identity
from yanmo.train.nodes.node import Node
from yanmo.train.nodes.outcome import Outcome
from yanmo.train.nodes.still_there import NO, QUESTION, YES
from yanmo.train.nodes.wire import Message, Wire

log = logging.getLogger(__name__)
PROTOCOL = 1
_POLL_SECONDS = 0.1
_HELLO_SECONDS = 10.0
"""How long a connection may take to say whose it is."""
_READ_SECONDS = 2.0
"""How long one that is refused may take to read why."""
_MOST_PENDING = 64
_BIND_SECONDS = 8.0
"""How long the port of a run that ends just now is waited for."""
_LEAVE_SECONDS = 5.0
"""How long the nodes may take to leave once they were told how it ended."""


@dataclass
class _Guest:
    """A connection that is not a node's yet."""

    wire: Wire
    since: float = field(default_factory=time.monotonic)
    hello: Message | None = None
    is_told: bool = False
    """Whether it has asked after a node, and has its answer: it closes the connection itself."""


class Reception:
    """The port of the rendezvous, and who has come; a thread answers."""

    def __init__(self, options: TrainConfig) -> None:
        self._options = options
        self._identity: Identity | None = None
        self._over = threading.Event()
        self.lock = threading.Lock()
        """For `nodes`, where it is read while nodes may come."""
        self.nodes: dict[int, Node] = {}
        self.in_window = False
        """Whether ranks train: nobody may take another's place."""
        self.refusal: Exception | None = None
        """Why a node cannot train with this one, so that none does."""
        self._outcome: Outcome | None = None

    @contextlib.contextmanager
    def open(self, identity: Identity) -> Iterator[None]:
        """While inside, the other nodes may come.

        Raises:
            EnvironmentFault: the port is taken, or is not one of this machine.
        """
        self._identity = identity
        self.nodes, self.refusal, self._outcome = {}, None, None
        self._over.clear()
        server = _listen(*self._options.meeting_point())
        thread = threading.Thread(target=self._accept, args=(server,), daemon=True, name="nodes")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            until = time.monotonic() + _LEAVE_SECONDS  # closed before they read it, it could be lost
            while not all(n.wire.is_closed for n in self.nodes.values()) and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            server.close()
            for node in self.nodes.values():
                node.wire.close()

    def tell(self, outcome: Outcome) -> None:
        """Tell all nodes how it ended, and those that come from now on."""
        with self.lock:
            self._outcome = outcome
            for node in self.nodes.values():
                node.wire.send("outcome", **vars(outcome))

    def _accept(self, server: socket.socket) -> None:
        pending: list[_Guest] = []
        while not self._over.is_set():
            wire = _accepted(server, is_full=len(pending) >= _MOST_PENDING)
            pending += [_Guest(wire)] if wire else []
            pending = [guest for guest in pending if not self._is_answered(guest)]
        for guest in pending:
            if guest.hello and self._outcome:
                guest.wire.send("outcome", **vars(self._outcome))
            guest.wire.close()

    def _is_answered(self, guest: _Guest) -> bool:
        """Answer one who has come; False where he has said nothing yet, or has to wait."""
        wire = guest.wire
        guest.hello = guest.hello or wire.take()
        hello = None if guest.is_told else guest.hello
        is_late = hello is None and time.monotonic() - guest.since > _HELLO_SECONDS
        if wire.is_closed or is_late:
            wire.close()
            return True
        if hello is None:
            return False
        if hello["kind"] == QUESTION:
            wire.send(self._is_there(hello))
            guest.is_told = True
            return False
        try:
            answer = self._greet(wire, hello)
        except Exception as error:  # nothing that a stranger sends may end this thread
            log.warning("%s connected to %s and is no node: %s", wire.peer, self._options.rendezvous, error)
            wire.close()
            return True
        if answer is False:
            until = time.monotonic() + _READ_SECONDS  # closed before it is read, an answer could be lost
            while not wire.is_closed and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            wire.close()
        return answer is not None

    def _is_there(self, question: Message) -> str:
        """The answer to a node that asks whether this is still the node 0 that has welcomed it."""
        with self.lock:
            nodes = list(self.nodes.values())
        node = next((one for one in nodes if one.wire.token == question.get("token")), None)
        if node is None or node.wire.is_closed:
            return NO
        node.wire.lives()
        return YES

    def _greet(self, wire: Wire, message: Message) -> bool | None:
        """Welcome or refuse a node; False where it was refused, None where it comes too early.

        Raises:
            Exception: it is none.
        """
        assert self._identity is not None
        if message["kind"] != "hello" or message.get("protocol") != PROTOCOL:
            raise ValueError("no hello of this version")
        number, other = int(message["node"]), Identity.from_message(message["identity"])
        is_twice = False
        refusal = self._identity.refusal(number, other)
        if refusal is None and not 0 < number < self._options.nnodes:
            refusal = UsageError(
                f"--node-rank {number} of --nnodes {self._options.nnodes}: expected 1 to "
                f"{self._options.nnodes - 1}"
            )
        with self.lock:
            if refusal is None and self._outcome:
                wire.send("outcome", **vars(self._outcome))
                return False
            known = self.nodes.get(number)
            if refusal is None and known and not known.wire.is_closed:
                if known.wire.is_quiet:  # its machine may be gone, and this be the one in its place
                    return None
                is_twice = True
                refusal = UsageError(
                    f"--node-rank {number} is taken: {known.wire.peer} has it; give each node another one"
                )
            if refusal is None and self.in_window:  # in the place of one that is gone, which is not seen yet
                return None
            if refusal is None:
                wire.token = uuid.uuid4().hex
                wire.send("welcome", token=wire.token)
                self.nodes[number] = Node(wire)
        if refusal is None:
            log.info("node %d of %d is here, from %s", number, self._options.nnodes, wire.peer)
            return True
        outcome = Outcome.of(refusal)
        wire.send("refused", **vars(outcome))
        log.warning("%s was refused: %s", wire.peer, refusal)
        if not is_twice and not self.in_window:
            self.refusal = refusal
        return False


def _accepted(server: socket.socket, *, is_full: bool) -> Wire | None:
    """Who has come; None for nobody, or where too many wait already: a node comes again."""
    try:
        connection, _ = server.accept()
    except TimeoutError:
        return None
    except OSError as error:  # no more files, above all
        log.warning("a connection could not be taken: %s", error)
        time.sleep(_POLL_SECONDS)
        return None
    try:
        connection.setblocking(True)
        if not is_full:
            return Wire(connection)
    except (OSError, RuntimeError) as error:  # gone again; no more threads
        log.warning("a connection could not be taken: %s", error)
    connection.close()
    return None


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens at a port of this machine: on its loopback alone, where that is the host."""
    where = host if host == "localhost" or host.startswith("127.") or host == "::1" else ""
    family = (
        socket.AF_INET6 if (":" in where or (not where and socket.has_dualstack_ipv6())) else socket.AF_INET
    )
    until = time.monotonic() + _BIND_SECONDS
    while True:
        try:
            server = socket.create_server(
                (where, port), family=family, dualstack_ipv6=family == socket.AF_INET6 and not where
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < until:
                time.sleep(0.5)
                continue
            raise EnvironmentFault(
                f"node 0 cannot listen at port {port} ({error.strerror or error}): end what uses it, or give "
                "all nodes another --rendezvous (PET_MASTER_PORT)"
            ) from error
        server.settimeout(_POLL_SECONDS)
        return server
