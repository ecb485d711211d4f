"""`make test`: lint, types and tests one after the other, and at the end how long each of them took.

The first that fails ends it, as with make. In minutes of the clock and of the CPU: those of the clock also
depend on who else is at work.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_BIN = Path(sys.executable).parent
_PYTEST = [sys.executable, "-m", "pytest", "--durations=20", "--durations-min=10"]


def parts(options: argparse.Namespace) -> dict[str, list[list[str]]]:
    """What is looked at -> its commands."""
    found = {
        "lint": [[str(_BIN / "ruff"), "format", "--check", "."], [str(_BIN / "ruff"), "check", "."]],
        "types": [[str(_BIN / "mypy")]],
    }
    workers = ["-n", options.workers]
    if options.all:
        return {**found, "all tests": [[*_PYTEST, *workers, "--dist", "worksteal"]]}
    # worksteal gives a worker neighbouring tests, which share fixtures.
    found["tests"] = [[*_PYTEST, *workers, "--dist", "worksteal", "--quick"]]
    if options.draw:
        in_turn = ["--dist", "loadfile", "--no-loadscope-reorder"]  # files in the order of the draw
        found["drawn tests"] = [[*_PYTEST, *workers, *in_turn, "--drawn", str(options.minutes)]]
    return found


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make test")
    parser.add_argument("--workers", default="3", help="processes that run tests")
    parser.add_argument("--all", action="store_true", help="everything that this machine can run")
    parser.add_argument(
        "--draw", default="", help="a commit: also as many of the costly tests as there is time"
    )
    parser.add_argument("--minutes", type=float, default=12, help="for the tests of --draw")
    options = parser.parse_args(words)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # 0.1 s a process
    if options.draw:
        environment["YANMO_DRAW"] = options.draw
    took, code = [], 0
    for name, commands in parts(options).items():
        before, begun = _children(), time.monotonic()
        code = next((done for command in commands if (done := _code(command, environment))), 0)
        seconds = time.monotonic() - begun
        took.append(
            f"{name} {'failed after' if code else 'took'} {_minutes(seconds)} "
            f"({_minutes(_children() - before)} of CPU)"
        )
        if code:
            break
    print("; ".join(took), flush=True)
    return code


def _code(command: list[str], environment: dict[str, str]) -> int:
    try:
        return subprocess.run(command, env=environment).returncode
    except KeyboardInterrupt:  # pytest has said so
        return 130


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
