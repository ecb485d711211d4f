"""A process that ends at a write of its own choosing, as by kill -9.

    python killed_writes.py MOMENT ARGUMENT...

is `yanmo store ARGUMENT...`, which ends before its write number MOMENT to a store.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from yanmo.store.file_store import FileStore


def die_at_write(moment: int, how: signal.Signals = signal.SIGKILL) -> None:
    """End this process with SIGKILL before its write number `moment` to a store; with SIGSTOP, halt it."""
    stores: list[Any] = [FileStore]
    if "AWS_ENDPOINT_URL" in os.environ:  # without it no test has an S3 server
        from yanmo.store.s3.store import S3Store

        stores.append(S3Store)
    count = 0

    def counted(real: Any) -> Any:
        def write(*args: Any) -> Any:
            nonlocal count
            if args[1].startswith("probes/"):  # each process asks S3 once, and gets no further by it
                return real(*args)
            if count == moment:
                count += 1
                os.kill(os.getpid(), how)
                return real(*args)
            count += 1
            return real(*args)

        return write

    for store in stores:
        for name in ("create", "replace", "delete"):
            setattr(store, name, counted(getattr(store, name)))


if __name__ == "__main__":
    from yanmo.tools.store.command import main

    die_at_write(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
