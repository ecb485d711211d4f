"""The one way to start a process that is to be broken, to kill all of it, and to wait for it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.place import Place

ROOT = Path(__file__).parents[2]
WITNESS = Path(__file__).parent / "witness"
SOURCES = ROOT / "tests" / "data" / "documents.jsonl"
CHANNEL = "chaos"
TIMEOUT_SECONDS = 900.0
_MARK = "YANMO_CHAOS_RUN"
_GONE_SECONDS = 15.0
_NOT_OURS = ("AWS_", "YANMO_", "PYTHONPATH", "KUBE", "KFP_", "KF_")
"""Beginnings of variables that nothing gets from here: a store, a cluster that somebody uses."""

_COMMON = ("--channel", CHANNEL, "--metrics-port", "-1")
STAGES: dict[str, tuple[str, ...]] = {
    "curate": (
        *("--sources", str(SOURCES), "--workers", "1"),
        *("--max-malformed-share", "1", "--max-filter-share", "1"),
    ),
    "balance": ("--quotas", "诗=50%,*=200%"),
    "tokenize": ("--workers", "1", "--vocab-size", "1024", "--agreement-sentences", "50"),
    "train": (
        *("--steps", "12", "--checkpoint-steps", "3", "--warmup-steps", "2", "--batch-rows", "8"),
        *("--layers", "2", "--width", "32", "--heads", "2", "--head-width", "16", "--feed-forward", "64"),
        *("--ranks", "1", "--valid-characters", "500"),
    ),
    "evaluate": (
        *("--workers", "1", "--samples", "1", "--sample-tokens", "8", "--bootstrap-draws", "100"),
        *("--baseline-characters", "20000"),
    ),
    "promote": ("--draws", "2000"),
}
"""184 documents, a two-layer model of 80,000 parameters, 12 steps, a checkpoint every 3."""


@dataclass
class Run:
    """One process of a stage or a tool, while it runs and after."""

    process: subprocess.Popen[bytes]
    log: Path
    ident: str
    started: float
    orphans: list[str] = field(default_factory=list)
    """Command lines of processes that outlived it for too long; they were killed."""

    def wait(self, timeout: float = TIMEOUT_SECONDS) -> int:
        """Its exit code, once it and all that it started have ended."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill_all()
            code = -9
            self.orphans.append(f"hung for {timeout:.0f} s: {self.process.args!r}")
        self.see_them_end()
        return code

    def kill_all(self) -> None:
        """SIGKILL to the stage and all that it started, as when a pod or a machine goes."""
        for pid in (self.process.pid, *self.pids()):
            _kill(pid)

    def kill_main(self) -> None:
        """SIGKILL to the stage's own process alone, as the kernel does when memory is short."""
        _kill(self.process.pid)

    @property
    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def see_them_end(self) -> None:
        end = time.monotonic() + _GONE_SECONDS
        while (left := self.pids()) and time.monotonic() < end:
            time.sleep(0.02)
        for pid in left:
            self.orphans.append(_command_line(pid))
            _kill(pid)

    def pids(self) -> list[int]:
        """Of what it started and itself, as far as they live."""
        mark = f"{_MARK}={self.ident}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid() and _command_line(pid)]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _command_line(pid: int) -> str:
    try:  # empty for a zombie
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def start(
    module: str,
    arguments: Sequence[str],
    place: Place | None,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    **how: Any,
) -> Run:
    """Start `python -m module` on the store of `place`; its log goes to a file in `folder`.

    Args:
        environment: more variables (the witness, a clock offset).
        how: of `subprocess.Popen` what is to be another: cwd, stdout, preexec_fn.
    """
    ident = uuid.uuid4().hex
    log = folder / f"{module.rpartition('.')[2]}-{ident[:8]}.log"
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_OURS)}
    paths = (WITNESS, ROOT / "components", ROOT / "pipelines")
    env = {
        **inherited,
        **(place.environment() if place else {}),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONUNBUFFERED": "1",
        _MARK: ident,
        **(environment or {}),
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], env=env, start_new_session=True,
            **{"cwd": folder, "stdin": subprocess.DEVNULL, "stdout": file, "stderr": file, **how},
        )  # fmt: skip
    return Run(process, log, ident, time.monotonic())


def start_stage(
    stage: str, place: Place, folder: Path, *more: str, environment: dict[str, str] | None = None
) -> Run:
    """Start a stage of the small pipeline; `more` are further flags."""
    arguments = ("--store", place.uri, *_COMMON, *STAGES[stage], *more)
    return start(f"yanmo.{stage}", arguments, place, folder, environment)


def run_stage(stage: str, place: Place, folder: Path, *more: str, **variables: str) -> Run:
    """Run a stage to its end.

    Raises:
        AssertionError: it did not end with 0; holds the log.
    """
    run = start_stage(stage, place, folder, *more, environment=variables)
    code = run.wait()
    assert code == 0, f"{stage} ended with {code}:\n{run.text}"
    return run


def run_stages(stages: Sequence[str], place: Place, folder: Path) -> None:
    """Run stages one after the other, as `run_stage` does."""
    for stage in stages:
        run_stage(stage, place, folder)
