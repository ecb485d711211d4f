"""Runs a command for which the kernel refuses system calls, as file systems do that lack them.

    python -m denied link,linkat EPERM -- yanmo curate ...

It is a filter of seccomp(2), which any user may set for what he starts: nothing of the command is replaced.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_NUMBERS = {
    "x86_64": {"link": 86, "linkat": 265, "flock": 73, "fsync": 74},
    "aarch64": {"linkat": 37, "flock": 32, "fsync": 82},
}.get(platform.machine(), {})
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
IS_HERE = sys.platform == "linux" and bool(_NUMBERS)
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2


def deny(calls: list[str], error: int) -> None:
    """From now on these calls of this process and its children fail with `error`."""
    numbers = [_NUMBERS[call] for call in calls if call in _NUMBERS]
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _ARCHITECTURE[platform.machine()]), (_RETURN, 0, 0, _ALLOW)]
    lines += [(_LOAD, 0, 0, 0)]
    for number in numbers:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]
    lines += [(_RETURN, 0, 0, _ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    whole = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(lines), ctypes.addressof(program)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for words in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(whole), 0, 0)):
        if prctl(*words):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    calls, error, _, *command = sys.argv[1:]
    deny(calls.split(","), getattr(errno, error))
    os.execvp(command[0], command)
