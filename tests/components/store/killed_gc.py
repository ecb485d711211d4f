"""`yanmo store gc` that kills itself: killed_gc.py STORE MOMENT ends before write number MOMENT."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from yanmo.common.store.file_store import FileStore
from yanmo.store.command import main

STORE, MOMENT = sys.argv[1], int(sys.argv[2])
count = 0


def counted(real: Any) -> Any:
    def write(*args: Any) -> Any:
        global count
        if count == MOMENT:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        return real(*args)

    return write


if __name__ == "__main__":
    for name in ("create", "replace", "delete"):
        setattr(FileStore, name, counted(getattr(FileStore, name)))
    sys.exit(main(["gc", "--store", STORE, "--older-than", "0", "--delete"]))
