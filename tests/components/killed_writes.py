"""A process that ends at a write of its own choosing, as by kill -9.

    python killed_writes.py MOMENT ARGUMENT...

is `yanmo store ARGUMENT...`, which ends before its write number MOMENT to a store.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

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


def store_command(moment: int, argv: Sequence[str]) -> NoReturn:
    """`yanmo store ARGUMENT...`, which ends before its write number `moment`."""
    from yanmo.tools.store.command import main

    die_at_write(moment)
    sys.exit(main(argv))


def forked(command: Callable[..., NoReturn], *arguments: Any) -> int:
    """Exit code of a function in a fork of this process."""
    process = multiprocessing.get_context("fork").Process(target=command, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


if __name__ == "__main__":
    store_command(int(sys.argv[1]), sys.argv[2:])
