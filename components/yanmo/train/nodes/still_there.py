"""Whether node 0 is still there, asked over a new connection while the old one is silent.

What a cut of the network swallowed is sent again by TCP after waits that double, 51 s after the last one for
a cut of a minute; so a connection may be silent for as long again as the cut has lasted, or silent one way,
as each end has waits of its own, and look like a machine without power. A new connection is there as soon as
the network is. One question tells both sides: node 0 hears that the node lives, and its answer says the same
of node 0.

Alternative not taken: TCP_USER_TIMEOUT and keep-alives. They end a connection that is silent, and cannot
tell a cut that is over from a machine that is gone.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import threading
import time
from collections.abc import Iterator

from yanmo.train.nodes.wire import Wire

log = logging.getLogger(__name__)
QUESTION, YES, NO = "there?", "there", "another"
_EVERY_SECONDS, _CONNECT_SECONDS, _ANSWER_SECONDS, _LEAVE_SECONDS, _POLL_SECONDS = 3.0, 5.0, 5.0, 1.0, 0.05


@contextlib.contextmanager
def asking(wire: Wire, where: tuple[str, int]) -> Iterator[None]:
    """While inside, a thread asks node 0 whenever beats are missed, at this end or at node 0's.

    Args:
        wire: to node 0, which has welcomed this node.
        where: host and port at which node 0 listens.
    """
    over = threading.Event()
    asks = functools.partial(_ask_now_and_then, wire, where, over)
    thread = threading.Thread(target=asks, daemon=True, name="node-0-there")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_LEAVE_SECONDS)  # it may be waiting for a machine that is gone


def _ask_now_and_then(wire: Wire, where: tuple[str, int], over: threading.Event) -> None:
    while not over.wait(_EVERY_SECONDS) and not wire.is_closed:
        if not (wire.is_quiet or wire.is_unheard):
            continue
        answer = _answer(wire.token, where, over)
        if answer == YES:
            wire.lives()
        elif answer == NO:  # it was started again: nothing will ever come over the connection to the old one
            log.warning("node 0 at %s:%d is not the one that had begun", *where)
            wire.hang_up()


def _answer(token: str, where: tuple[str, int], over: threading.Event) -> str:
    """What node 0 says to a new connection; "" for nothing."""
    try:
        asked = Wire(socket.create_connection(where, _CONNECT_SECONDS))
    except OSError:
        return ""
    try:
        asked.send(QUESTION, token=token)
        until = time.monotonic() + _ANSWER_SECONDS
        while not asked.is_over and not over.is_set() and time.monotonic() < until:
            if message := asked.take():
                return str(message["kind"])
            time.sleep(_POLL_SECONDS)
    finally:
        asked.close()
    return ""
