"""torchrun that ends when its supervisor does, for two ranks and more.

    python -m yanmo.train.supervision.torchrun <torchrun's arguments>

A supervisor killed with -9 can tell nobody; without this, torchrun and its ranks would train on next to the
run that is started next. Workers end with torchrun in the same way (worker.py).

All ranks are on this machine and connect over its loopback address, so nothing asks for the machine's
name: in a container without a network, or on a node that is not in DNS, it does not resolve, or only
after minutes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

from yanmo.common.parent import PARENT, end_with_parent

CODES = b"yanmo-codes "
LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACE = "lo" if sys.platform == "linux" else "lo0"


def look_up_no_name() -> None:
    """Keep torch from looking up the machine's full name in this process and those it starts.

    `--local-addr` covers the rendezvous. torchrun's agent and its event records look it up as well, each time
    waiting for a DNS server that may not answer; so does gloo, to choose its interface.
    """
    socket.getfqdn = lambda name="": name or socket.gethostname()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)


def send_codes(codes: dict[int, int]) -> None:
    """Tell the supervisor how the ranks that failed ended, in the order in which torchrun saw it.

    It sees them ten times a second, and ends the others itself. They go the way of the ranks' statuses.
    """
    sys.stderr.flush()
    os.write(2, CODES + json.dumps(list(codes.items())).encode() + b"\n")


def parse_codes(line: bytes) -> dict[int, int] | None:
    """What `send_codes` wrote; None for another line."""
    _, mark, text = line.partition(CODES)
    if not mark:
        return None
    try:
        return {int(rank): int(code) for rank, code in json.loads(text)}
    except (ValueError, TypeError):  # another process wrote into it
        return None


if __name__ == "__main__":
    end_with_parent()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # asks for stacks: also of ranks before they answer
    os.environ[PARENT] = str(os.getpid())  # the workers' parent
    look_up_no_name()
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    try:
        main(sys.argv[1:])
    except ChildFailedError as error:
        send_codes({rank: failure.exitcode for rank, failure in error.failures.items()})
        raise
