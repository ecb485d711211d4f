"""torchrun that ends when its supervisor does, for two ranks and more.

    python -m yanmo.train.supervision.torchrun <torchrun's arguments>

A supervisor killed with -9 can tell nobody; without this, torchrun and its ranks would train on next to the
run that is started next. Workers end with torchrun in the same way (worker.py).

All ranks are on this machine and connect over its loopback address, so nothing asks for the machine's
name: in a container without a network, or on a node that is not in DNS, it does not resolve, or only
after minutes.
"""

from __future__ import annotations

import os
import socket
import sys

from yanmo.common.parent import PARENT, end_with_parent

LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACE = "lo" if sys.platform == "linux" else "lo0"


def look_up_no_name() -> None:
    """Keep torch from looking up the machine's full name in this process and those it starts.

    `--local-addr` covers the rendezvous. torchrun's agent and its event records look it up as well, each time
    waiting for a DNS server that may not answer; so does gloo, to choose its interface.
    """
    socket.getfqdn = lambda name="": name or socket.gethostname()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK_INTERFACE)


if __name__ == "__main__":
    end_with_parent()
    os.environ[PARENT] = str(os.getpid())  # the workers' parent
    look_up_no_name()
    from torch.distributed.run import main

    main(sys.argv[1:])
