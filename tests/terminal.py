"""Programs in a real pseudo-terminal, and what it then shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


class Screen:
    """What a terminal shows of what was written to it, as far as our lines need it."""

    def __init__(self) -> None:
        self.lines = [""]
        self.erased: list[str] = []
        """All that was erased again."""

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r\n|\n|\r|[^\x1b\r\n]+", text):
            if part == "\x1b[2K":
                self.erased.append(self.lines[-1])
                self.lines[-1] = ""
            elif part.endswith("\n"):
                self.lines.append("")
            elif part == "\r":
                assert "\r\x1b[2K" in text, "whoever goes back erases the line"
            elif not part.startswith("\x1b"):
                self.lines[-1] += part


def in_a_terminal(
    words: Sequence[str],
    columns: int = 100,
    environment: Mapping[str, str] | None = None,
    interrupt_at: str = "",
    stdout: int | None = None,
) -> tuple[int, Screen, str]:
    """Exit code, screen and all bytes of a Python program.

    Args:
        interrupt_at: Ctrl-C is pressed once this was written.
    """
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    around = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "CI")}
    process = subprocess.Popen(
        [sys.executable, *words],
        stdin=terminal,
        stdout=terminal if stdout is None else stdout,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**around, "PYTHONPATH": str(ROOT / "components"), "TERM": "xterm", **(environment or {})},
    )
    os.close(terminal)
    seen, was_interrupted = b"", False
    try:
        while chunk := os.read(master, 65536):
            seen += chunk
            if interrupt_at and not was_interrupted and interrupt_at.encode() in seen:
                was_interrupted = True
                os.write(master, b"\x03")
    except OSError:  # Linux says so where the other end is closed
        pass
    os.close(master)
    text = seen.decode("utf-8")
    screen = Screen()
    screen.write(text)
    return process.wait(), screen, text
