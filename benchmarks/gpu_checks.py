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
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
from gpu_report import FAIL, LATE, Measure, exit_code, read_line, table

ROOT = Path(__file__).resolve().parent.parent
PREPARED = ROOT / ".gpu"
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


PARTS = {
    "1": {
        "machine": "gpu_machine",
        "attention": "gpu_attention",
        "steps": "gpu_steps",
        "compiled": "gpu_steps",
        "memory": "gpu_steps",
        "evaluation": "gpu_stages",
    },
    "2": {
        "machine": "gpu_machine",
        "zero": "gpu_engines",
        "checkpoints": "gpu_engines",
        "out_of_memory": "gpu_stages",
        "resume": "gpu_stages",
    },
}
"""Part -> its checks, functions of a module."""
SECONDS, OF_ONE, LEAST = 530.0, 240.0, 20.0
"""Of a part, by its own clock; of one of its checks, at most and at least."""


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
    planned = {n: m for n, m in PARTS[asked.part].items() if not asked.only or n in asked.only.split(",")}
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
    planned: Mapping[str, str], part: str, setting: Setting, seconds: float, of_one: float = OF_ONE
) -> tuple[list[Measure], list[str]]:
    """All measures, and what the checks said; a check that has no time left is named.

    Args:
        seconds: of all; more than `SECONDS` lengthens each check's limit too, for a slow machine.
    """
    of_one *= max(1.0, seconds / SECONDS)
    end, measures, log = time.monotonic() + seconds, list[Measure](), list[str]()
    for name, module in planned.items():
        left = end - time.monotonic()
        found, said = [Measure("all of it", LATE, reason=f"{left:.0f} s were left", check=name)], list[str]()
        if left >= LEAST:
            found, said = _one(name, module, part, setting, min(left, of_one))
            print(f"{name}: {end - time.monotonic():.0f} s are left", flush=True)
        measures += found
        log += [f"== {name}", *said]
    return measures, log


def _one(
    name: str, module: str, part: str, setting: Setting, seconds: float
) -> tuple[list[Measure], list[str]]:
    """The measures and the output of one check, which gets so many seconds."""
    command = [sys.executable, __file__, part, "--inside", f"{module}.{name}", "--device", setting.device]
    command += ["--prepared", str(setting.prepared), *(["--quick"] if setting.quick else [])]
    # A session of its own, so that what it started ends with it.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
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
        found.append(Measure("the rest of it", LATE, reason=f"ended after {seconds:.0f} s", check=name))
    elif code or not found:
        found.append(Measure("its process", FAIL, reason=f"ended with {code}: see its output", check=name))
    if any(m.status == FAIL for m in found):
        print("\n".join(said[-_TAIL:]), flush=True)
    return found, said


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
