"""torchrun that ends when its supervisor does.

    python -m yanmo.train.supervision.torchrun <torchrun's arguments>

A supervisor killed with -9 can tell nobody; without this, torchrun and its ranks would train on, beside the
run that is started next. Workers do the same towards torchrun (worker.py).

All ranks are on this machine and meet over its loopback address, so nothing here asks for the machine's name:
in a container without a network, or on a node that is not in DNS, it does not resolve, or only after minutes.
"""

from __future__ import annotations

import os
import socket
import sys

from yanmo.common.parent import PARENT, end_with_parent

LOOPBACK = "127.0.0.1"


def look_up_no_name() -> None:
    """Let this process and those it starts do without the machine's full name, which torch asks for.

    `--local-addr` covers the place where ranks meet. torchrun's agent and its records of events ask as well,
    each time for as long as a DNS server takes that does not answer; and gloo, to choose its interface.
    """
    socket.getfqdn = lambda name="": name or socket.gethostname()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")


if __name__ == "__main__":
    end_with_parent()
    os.environ[PARENT] = str(os.getpid())  # the workers' parent
    look_up_no_name()
    from torch.distributed.run import main

    main(sys.argv[1:])
