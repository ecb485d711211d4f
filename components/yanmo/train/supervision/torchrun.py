"""torchrun that ends when its supervisor does.

    python -m yanmo.train.supervision.torchrun <torchrun's arguments>

A supervisor killed with -9 can tell nobody; without this, torchrun and its ranks would train on, beside the
run that is started next. Workers do the same towards torchrun (worker.py).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT = "YANMO_PARENT"
"""The variable that tells a process who started it: a parent killed at once leaves no other trace."""
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends; does nothing on other systems."""
    if sys.platform == "linux":
        parent = int(os.environ.get(PARENT, os.getppid()))
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended in between
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent()
    os.environ[PARENT] = str(os.getpid())  # the workers' parent
    from torch.distributed.run import main

    main(sys.argv[1:])
