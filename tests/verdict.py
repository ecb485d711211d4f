"""`make test`: lint, then types and tests at the same time, and at the end how long each of them took.

Tests wait for processes and clocks; mypy takes the time that they leave. In minutes of the clock and of the
CPU: those of the clock also depend on who else is at work.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_BIN = Path(sys.executable).parent
_PYTEST = [sys.executable, "-m", "pytest", "--durations=20", "--durations-min=10"]


Part = list[list[str]]
"""Commands, one after the other; the first that fails ends it."""


def parts(options: argparse.Namespace) -> Iterator[dict[str, Part]]:
    """Yield what is looked at together: name -> its commands."""
    yield {"lint": [[str(_BIN / "ruff"), "format", "--check", "."], [str(_BIN / "ruff"), "check", "."]]}
    types = [[str(_BIN / "mypy")]]
    # worksteal gives a worker neighbouring tests, which share fixtures.
    tests = [*_PYTEST, "-n", options.workers, "--dist", "worksteal"]
    if options.all:
        yield {"types": types, "all tests": [tests]}
        return
    yield {"types": types, "tests": [[*tests, "--quick"]]}
    if options.draw:
        in_turn = ["--dist", "loadfile", "--no-loadscope-reorder"]  # files in the order of the draw
        drawn = [*_PYTEST, "-n", options.workers, *in_turn, "--drawn", str(options.minutes)]
        yield {"drawn tests": [drawn]}


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
    for together in parts(options):
        with ThreadPoolExecutor() as threads:
            running = {name: threads.submit(_run, part, environment) for name, part in together.items()}
        for name, future in running.items():
            failed, seconds, of_cpu = future.result()
            how = "failed after" if failed else "took"
            took.append(f"{name} {how} {_minutes(seconds)} ({_minutes(of_cpu)} of CPU)")
            code = code or failed
        if code:
            break
    print("; ".join(took), flush=True)
    return code


def _run(part: Part, environment: Mapping[str, str]) -> tuple[int, float, float]:
    """Return the exit code of the first command that fails, seconds of the clock and of the CPU."""
    begun, of_cpu, code = time.monotonic(), 0.0, 0
    for command in part:
        process = subprocess.Popen(command, env=environment)
        _, status, used = os.wait4(process.pid, 0)  # with all that it waited for itself
        process.returncode = code = os.waitstatus_to_exitcode(status)
        of_cpu += used.ru_utime + used.ru_stime
        if code:
            break
    return code, time.monotonic() - begun, of_cpu


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # pytest has said so
        sys.exit(130)
