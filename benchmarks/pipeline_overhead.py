"""What `yanmo run` adds to the same stages started by hand.

    python benchmarks/pipeline_overhead.py --store runs/demo --channel demo --set data_sources=corpus/...

Give the flags of a run that is committed already: each stage then only finds its key, so that the
difference is the pipeline's own and not the noise of minutes of work. Both ways start exactly the same
command lines, in turns. Read the CPU seconds on a busy machine, the wall seconds on an idle one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RECORD = """
import json, sys
from pathlib import Path
from yanmo_pipelines import local_runner, run
real = local_runner._run_process
commands = []
def record(command, environment):
    commands.append(command)
    return real(command, environment)
local_runner._run_process = record
code = run.main(sys.argv[2:])
Path(sys.argv[1]).write_text(json.dumps(commands))
sys.exit(code)
"""


def measured(action: Callable[[], None]) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of all child processes, that `action` takes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    action()
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def quietly(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{' '.join(command[:4])}: exit code {ended.returncode}\n{ended.stderr[-2000:]}")


def commands_of(run_flags: list[str]) -> list[list[str]]:
    """The command line of every task of a run, which this makes once."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "commands.json"
        quietly([sys.executable, "-c", RECORD, str(record), *run_flags])
        return json.loads(record.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def main() -> None:
    """Measure and print one line per way."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="other flags: yanmo run's"
    )
    parser.add_argument("--repeats", type=int, default=5)
    given, run_flags = parser.parse_known_args()
    commands = commands_of(run_flags)

    def by_hand() -> None:
        for command in commands:
            quietly(command)

    def by_pipeline() -> None:
        quietly([sys.executable, "-m", "yanmo.cli", "run", *run_flags])

    ways = {"by hand": by_hand, "yanmo run": by_pipeline}
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(given.repeats):
        for way, action in ways.items():
            times[way].append(measured(action))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{len(commands)} committed tasks, median of {given.repeats}; {machine}\n")
    medians = {}
    for way, pairs in times.items():
        medians[way] = tuple(statistics.median(values) for values in zip(*pairs, strict=True))
        print(f"{way:<12}{medians[way][0]:8.2f} s wall {medians[way][1]:8.2f} s CPU")
    wall, cpu = (b - a for a, b in zip(medians["by hand"], medians["yanmo run"], strict=True))
    print(f"{'added':<12}{wall:8.2f} s wall {cpu:8.2f} s CPU")


if __name__ == "__main__":
    main()
