"""A process that ends when the one that started it does, also by kill -9: nobody waits for it any more.

On Linux the kernel sees to it, whatever this process is doing then (a rank may stand in C code). It means the
thread that started the process, so that one has to live as long. Where `multiprocessing` started this process
its fork server stands between, which ends after its children: there, and on other systems, a thread looks.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time

PARENT = "YANMO_PARENT"
"""The variable that tells a process who started it: a parent killed at once leaves no other trace."""
_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 1.0
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
"""Loaded here, as nothing may be loaded between fork and exec."""


def end_with_parent(parent: int = 0, how: signal.Signals = signal.SIGKILL) -> None:
    """End this process by the signal `how` when its parent ends; at once where it is gone already.

    Args:
        parent: its process id. Without it, it is the process that `multiprocessing` started this one for,
            else the one that `PARENT` names, else the parent of now.
    """
    started_for = None if parent else multiprocessing.parent_process()
    expected = parent or int(os.environ.get(PARENT, os.getppid()))

    def is_gone() -> bool:
        return not started_for.is_alive() if started_for else os.getppid() != expected

    def watch() -> None:
        while not is_gone():
            started_for.join() if started_for else time.sleep(_LOOK_SECONDS)
        os.kill(os.getpid(), how)

    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, how)
    if is_gone():  # it ended before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)  # between fork and exec another one would not act
    if started_for or _libc is None:
        threading.Thread(target=watch, daemon=True).start()
