"""How every command ends: what it was asked goes to stdout, what went wrong to stderr with its exit code."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from yanmo.common import waiting
from yanmo.common.answers import reader_left, take_stdout
from yanmo.common.errors import ExitCode, report
from yanmo.common.logs import setup
from yanmo.common.threads import close_pools

log = logging.getLogger(__name__)
_STDERR = 2
_STAT = Path("/proc/self/stat")
_START_TIME = 22 - 3
"""Place of `starttime` in /proc/self/stat (proc_pid_stat(5)), counted from the field after the name."""


def process_started() -> float:
    """Return when this process was started, by the monotonic clock: before Python, and what it imports.

    Now, where the system does not say.
    """
    try:
        fields = _STAT.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        since_boot = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot
    except (OSError, ValueError, IndexError, AttributeError):
        age = 0.0
    return time.monotonic() - max(age, 0.0)


def as_process(main: Callable[[], int]) -> NoReturn:
    """`main` as the last line of a `__main__`: its return value is the process's exit code.

    SIGTERM ends it in as orderly a way as Ctrl-C: leases released, attempts removed. stdout is for its
    answers alone.
    """
    take_stdout()
    _stop_on_sigterm()
    try:
        sys.exit(main())
    finally:
        close_pools()


def stacks_on_request() -> None:
    """Let SIGUSR1 write the stacks of all threads to stderr; the ranks of a training: into workers.log."""
    with contextlib.suppress(OSError, ValueError):  # stderr is closed
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # what is left where it is unregistered
        faulthandler.register(signal.SIGUSR1, _STDERR, all_threads=True)


def _stop_on_sigterm() -> None:
    """Let SIGTERM raise SystemExit, whatever the main thread waits for.

    A signal that comes between Python's last look for one and a call that waits (opening a file on a server
    that does not answer) would not end that call. So a thread sends it again until the handler has run.
    """
    heard = threading.Event()

    def stop(signum: int, frame: FrameType | None) -> None:
        heard.set()
        waiting.end_waits()
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, stop)
    received, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.detach(), warn_on_full_buffer=False)  # a byte for each signal, at once

    def send_until_heard() -> None:
        while numbers := received.recv(64):
            while (  # a stage may have a handler of its own meanwhile
                signal.SIGTERM in numbers and signal.getsignal(signal.SIGTERM) is stop and not heard.wait(0.2)
            ):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    threading.Thread(target=send_until_heard, name="sigterm", daemon=True).start()


def ended(name: str, serve: Callable[[], int], interrupted: str = "the same command starts it again") -> int:
    """Return what `serve` returns, or the exit code for what ended it, after a word about it in the log.

    Args:
        name: the command, as the lines of its log begin.
        interrupted: what Ctrl-C leaves behind.

    Raises:
        ModuleNotFoundError: a package is missing; the console script names the extra that has it.
    """
    setup("info", name)
    try:
        code = serve()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # `yanmo store ls | head`
        reader_left()
        return ExitCode.DONE
    except KeyboardInterrupt:
        log.warning("interrupted; %s", interrupted)
        return 128 + signal.SIGINT
    except ModuleNotFoundError:
        raise
    except Exception as error:
        return int(report(error, log))
