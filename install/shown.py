"""Runs an installer so that a person sees its progress, but not its list of a hundred packages."""

from __future__ import annotations

import codecs
import ctypes
import errno
import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

_LISTED = re.compile(r"^ [-+~] ")
_MAY_BE_LISTED = re.compile(r" ?$| [-+~]")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def run_shown(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command; on a terminal it draws its bars. Returns its exit code and what it said."""
    said: list[str] = []
    if sys.stderr.isatty():
        ours, theirs = pty.openpty()
        columns, rows = shutil.get_terminal_size()
        settings = termios.tcgetattr(theirs)
        settings[1] &= ~termios.OPOST  # ours ends the lines
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    else:
        ours, theirs = os.pipe()
    child = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=_end_with_us,
    )
    os.close(theirs)
    try:
        for text in _without_list(_read(ours)):
            said.append(text)
            sys.stderr.write(text)
            sys.stderr.flush()
        return child.wait(), _ANSI.sub("", "".join(said))
    finally:
        os.close(ours)
        child.kill()
        child.wait()


def _read(descriptor: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        try:
            data = os.read(descriptor, 1 << 16)
        except OSError as error:  # a terminal whose other side is closed
            if error.errno != errno.EIO:
                raise
            return
        if not data:
            return
        yield decoder.decode(data)


def _without_list(texts: Iterator[str]) -> Iterator[str]:
    """Texts as they come, without the lines of the list, which follows the word `Installed`."""
    buffer, lists = "", False
    for text in texts:
        if not lists:
            before, found, rest = text.partition("Installed ")
            yield before
            if not found:
                continue
            lists, text = True, found + rest
        *lines, buffer = (buffer + text).split("\n")
        yield from (line + "\n" for line in lines if not _LISTED.match(_ANSI.sub("", line)))
        if not _MAY_BE_LISTED.match(_ANSI.sub("", buffer)):
            yield buffer
            buffer = ""
    yield buffer


def _end_with_us() -> None:
    """In the child: end when the installer is killed, so that the next one finds nobody at work."""
    if _libc is not None:
        with suppress(AttributeError):
            _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
