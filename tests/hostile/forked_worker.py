"""A training's only rank forked from the process that has imported torch: 1.5 CPU-seconds instead of 3.7.

The supervisor starts it by `subprocess.Popen` as always; only what the kernel does last is another: where
`python -m yanmo.train.worker` would be executed, its module runs in the fork. So it is a process of its own,
in a session of its own, with the environment, the pipe and the signals that it would have.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import traceback
from typing import Any

_WORKER = "yanmo.train.worker"
_original: Any = subprocess._fork_exec  # type: ignore[attr-defined]


def fork_workers() -> None:
    """From now on, in this process."""
    subprocess._fork_exec = _fork  # type: ignore[attr-defined]


def _fork(args: Any, *rest: Any) -> int:
    """As `subprocess._fork_exec`, whose arguments these are."""
    words = [os.fsdecode(word) for word in args]
    if words[1:3] != ["-m", _WORKER]:
        return int(_original(args, *rest))
    environment = rest[4]
    child_read, written, errors = rest[5], rest[8], rest[10]
    pid = os.fork()
    if not pid:
        _become(words, environment, (child_read, written, errors))
    return pid


def _become(words: list[str], environment: list[bytes], streams: tuple[int, int, int]) -> None:
    """The worker; does not return."""
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.setsid()
        for number, given in enumerate(streams):
            if given != -1:
                os.dup2(given, number)
        os.closerange(3, 4096)
        os.environ.clear()
        os.environ.update(map(os.fsdecode, each.split(b"=", 1)) for each in environment)  # type: ignore[misc]
        for number, name in ((1, "stdout"), (2, "stderr")):
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", errors="replace", closefd=False))
        sys.argv = words[2:]
        runpy.run_module(_WORKER, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code)
