"""The driver of benchmarks/gpu.sh: each check in a process of its own, with a time limit.

    python benchmarks/gpu_checks.py prepare
    python benchmarks/gpu_checks.py 1|2 [--device cpu] [--quick] [--only NAME,NAME] [--seconds 540]

A check that crashes (an illegal access takes the process with it) costs only itself. On a CPU the same checks
run with what a CPU has, to try this driver: what needs CUDA is skipped and says so.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from gpu_report import FAIL, LATE, Measure, exit_code, read_line, table

ROOT = Path(__file__).resolve().parent.parent
PREPARED = ROOT / ".gpu"
_ERROR = re.compile(r"(\[rank\d+\]: )?[\w.]+(Error|Exception|Interrupt|Fault): ")
"""The last line of a traceback, as Python writes it."""
_TAIL = 30
"""Lines of a check's output that are shown where it fails."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a check is told."""

    device: str
    quick: bool
    """Fewer and smaller cases: to try the driver."""
    prepared: Path
    """The folder that `prepare` filled."""


Check = Callable[[Setting], Iterator[Measure]]


class Planned(NamedTuple):
    """A check of a part."""

    name: str
    module: str
    seconds: float
    """After which it is ended."""


PARTS: dict[str, list[Planned]] = {
    "1": [
        Planned("machine", "gpu_machine", 60),
        Planned("attention", "gpu_attention", 120),
        Planned("steps", "gpu_steps", 120),
        Planned("waits", "gpu_steps", 60),
        Planned("compiled", "gpu_steps", 150),
        Planned("evaluation", "gpu_stages", 150),
    ],
    "2": [
        Planned("machine", "gpu_machine", 60),
        Planned("zero", "gpu_engines", 150),
        Planned("checkpoints", "gpu_engines", 60),
        Planned("out_of_memory", "gpu_stages", 150),
        Planned("resume", "gpu_stages", 240),
    ],
}
SECONDS = 530.0
"""Of a part, by its own clock."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("prepare", *PARTS), help="what to do")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases")
    parser.add_argument("--only", default="", help="checks, with commas")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the whole part")
    parser.add_argument("--prepared", type=Path, default=PREPARED, help="folder that `prepare` fills")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.part == "prepare":
        from gpu_prepare import prepare

        prepare(asked.prepared)
        return 0
    setting = Setting(asked.device, asked.quick, asked.prepared)
    planned = [p for p in PARTS[asked.part] if not asked.only or p.name in asked.only.split(",")]
    if asked.inside:
        return inside(asked.inside, setting)
    measures, log = run(planned, asked.part, setting, asked.seconds)
    print("\n" + table(measures), flush=True)
    write(asked.part, measures, log)
    return exit_code(measures)


def inside(name: str, setting: Setting) -> int:
    """Run one check, `module.function`, in this process and print its measures."""
    module, _, function = name.partition(".")
    check: Check = getattr(importlib.import_module(module), function)
    for measure in check(setting):
        print(dataclasses.replace(measure, check=function).line(), flush=True)
    return 0


def run(
    planned: Sequence[Planned], part: str, setting: Setting, seconds: float
) -> tuple[list[Measure], list[str]]:
    """All measures, and what the checks said; a check that has no time left is named.

    Args:
        seconds: of all; more than `SECONDS` lengthens each check's limit too, for a slow machine.
    """
    longer = max(1.0, seconds / SECONDS)
    end, measures, log = time.monotonic() + seconds, list[Measure](), list[str]()
    for each in planned:
        left = end - time.monotonic()
        if left < min(20.0, each.seconds / 4):
            found, said = [Measure("all of it", LATE, reason=f"{left:.0f} s were left", check=each.name)], []
        else:
            began = time.monotonic()
            found, said = _one(each, part, setting, min(left, longer * each.seconds))
            print(f"{each.name}: {time.monotonic() - began:.0f} s", flush=True)
        measures += found
        log += [f"== {each.name}", *said]
    return measures, log


def _one(each: Planned, part: str, setting: Setting, seconds: float) -> tuple[list[Measure], list[str]]:
    """The measures and the output of one check, which gets so many seconds."""
    command = [sys.executable, __file__, part, "--inside", f"{each.module}.{each.name}"]
    command += ["--device", setting.device]
    command += ["--prepared", str(setting.prepared), *(["--quick"] if setting.quick else [])]
    # A session of its own, so that what it started ends with it.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        _end(process)

    timer = threading.Timer(seconds, stop)
    timer.start()
    found, said = [], []
    assert process.stdout is not None
    for line in process.stdout:
        measure = read_line(line)
        if measure is not None:
            print(line[line.index("{") :].rstrip(), flush=True)
            found.append(measure)
        else:
            said.append(line.rstrip())
    code = process.wait()
    timer.cancel()
    if is_late.is_set():
        found.append(Measure("the rest of it", LATE, reason=f"ended after {seconds:.0f} s", check=each.name))
    elif code or not found:
        found.append(
            Measure("its process", FAIL, reason=f"ended with {code}: {_last(said)}", check=each.name)
        )
    if any(m.status == FAIL for m in found):
        print("\n".join(said[-_TAIL:]), flush=True)
    return found, said


def _last(said: Sequence[str]) -> str:
    """The error of a traceback, if there was one: libraries say more after it. Else the last line."""
    lines = [line.strip() for line in said if line.strip()] or ["no output"]
    errors = [line for line in lines if _ERROR.match(line)]
    return (errors or lines)[-1][:200]


def _end(process: subprocess.Popen[str]) -> None:
    """End a check and what it started: its own session, and those of the trainings below it."""
    check = psutil.Process(process.pid)
    for each in [*check.children(recursive=True), check]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()


def write(part: str, measures: Sequence[Measure], log: Sequence[str]) -> None:
    """The results as JSON and the checks' output, below $OUT."""
    folder = os.environ.get("OUT", "")
    if not folder:
        return
    value = {"part": part, "counts": {}, "measures": [dataclasses.asdict(m) for m in measures]}
    value["counts"] = {s: sum(m.status == s for m in measures) for s in sorted({m.status for m in measures})}
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, ensure_ascii=False, indent=1)
    (path / f"gpu-{part}.json").write_text(text, encoding="utf-8")
    (path / f"gpu-{part}.log").write_text("\n".join(log)[-(8 << 20) :] + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
