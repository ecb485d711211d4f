"""A process that ends at a write of its own choosing, as by kill -9."""

from __future__ import annotations

import os
import signal
from typing import Any

from yanmo.store.file_store import FileStore


def die_at_write(moment: int) -> None:
    """End this process with SIGKILL before its write number `moment` to a store on a folder."""
    count = 0

    def counted(real: Any) -> Any:
        def write(*args: Any) -> Any:
            nonlocal count
            if count == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            return real(*args)

        return write

    for name in ("create", "replace", "delete"):
        setattr(FileStore, name, counted(getattr(FileStore, name)))
