"""The demo's own timetable: wall seconds by stage of a first and of a second run.

    python benchmarks/demo_timetable.py [VARIABLE=VALUE of `make demo`]

Runs `make demo` into a new store, then again, and prints one Markdown table. Takes as long as the demo does.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_ROW = re.compile(r"^(\S[\w -]*?) +(\d+\.\d) +\d+\.\d(?:   \(.*\))?$", re.MULTILINE)


def timetable(store: Path, variables: list[str]) -> dict[str, float]:
    """Stage -> wall seconds, as the demo prints them."""
    command = ["make", "--no-print-directory", "-C", str(ROOT), "demo", *variables, f"STORE={store}"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        sys.exit(f"the run failed with exit code {ended.returncode}; its own message is above")
    table = ended.stdout[ended.stdout.index("\nstage  ") :]
    return {name: float(seconds) for name, seconds in _ROW.findall(table)}


def main() -> None:
    """Run twice and print the table."""
    variables = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="yanmo-timetable-") as folder:
        first, second = (timetable(Path(folder) / "store", variables) for _ in range(2))
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"make demo {' '.join(variables)}\n")
    print("| stage | first run, s | second run, s |\n|---|---:|---:|")
    for name, seconds in first.items():
        print(f"| {name} | {seconds:.1f} | {second.get(name, 0.0):.1f} |")


if __name__ == "__main__":
    main()
