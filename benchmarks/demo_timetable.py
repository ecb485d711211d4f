"""The demo's own timetable: wall seconds by stage of a first and of a second run.

    python benchmarks/demo_timetable.py [yanmo run's flags]

Runs the demo's pipeline into a new store, then again, and prints one Markdown table. Takes as long as
the demo does.
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
CORPUS = ROOT / "corpus/small.jsonl.zst"
_ROW = re.compile(r"^(\S[\w -]*?) +(\d+\.\d)(?:   \(.*\))?$", re.MULTILINE)


def timetable(store: Path, flags: list[str]) -> dict[str, float]:
    """Stage -> wall seconds, as `yanmo run` prints them."""
    command = [sys.executable, "-m", "yanmo.cli", "run", "--channel=demo", *flags, f"--store={store}"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        sys.exit(f"the run failed with exit code {ended.returncode}; its own message is above")
    table = ended.stdout[ended.stdout.index("\nstage  ") :]
    return {name: float(seconds) for name, seconds in _ROW.findall(table)}


def main() -> None:
    """Run twice and print the table."""
    flags = sys.argv[1:]
    if not any("curate_sources=" in flag for flag in flags):
        flags += ["--set", f"curate_sources={CORPUS}"]
    with tempfile.TemporaryDirectory(prefix="yanmo-timetable-") as folder:
        first, second = (timetable(Path(folder) / "store", flags) for _ in range(2))
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"yanmo run {' '.join(sys.argv[1:])}\n")
    print("| stage | first run, s | second run, s |\n|---|---:|---:|")
    for name, seconds in first.items():
        print(f"| {name} | {seconds:.1f} | {second.get(name, 0.0):.1f} |")


if __name__ == "__main__":
    main()
