"""Runs one command and says how it ended: by a process that forks, or as a person's shell would start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 60.0
"""After this a command hangs, whatever it does."""
MOST_BYTES = 3 << 30
"""Above this a command is ended, so that the machine stays usable."""
GRACE_SECONDS, TRAINING_GRACE = 10.0, 130.0
"""How long a command may take to end after SIGTERM; a training may save for two minutes."""
_NOT_OURS = ("AWS_", "YANMO_", "PYTHONPATH", "KUBE", "KFP_", "KF_")
"""Beginnings of variables that a command does not get: a store, a cluster that somebody uses."""
_KINDS = {
    **dict.fromkeys(("train", "evaluate", "tokenizer", "model"), "torch"),
    **dict.fromkeys(("submit", "rerun", "status", "doctor", "compile"), "cluster"),
}
"""First word of a command -> which process forks it, where it is not that of data."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    """Wall time; after SIGTERM where it was stopped."""
    cpu: float
    bytes: int
    """The most memory that one of its processes held."""
    stopped: bool
    """Whether it was still at work when it was asked to end."""
    killed: str
    """Why it was killed; empty where it ended by itself."""
    left: list[str]
    """Processes that outlived it."""


@dataclass
class Engine:
    """Starts commands of the code below `code`."""

    code: Path = ROOT
    _zygotes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def run(
        self,
        argv: tuple[str, ...],
        cwd: Path,
        *,
        environment: dict[str, str],
        powerless: bool = False,
        gone: bool = False,
        stop_after: float = 0.0,
        forked: bool = True,
        trace: Path | None = None,
        strike: dict[str, Any] | None = None,
    ) -> Ended:
        """Run `yanmo ARGV` in `cwd`, which is removed before where it is `gone`.

        Args:
            powerless: whether it must obey modes and owners, though it may run as root.
            stop_after: seconds until it is asked to end by SIGTERM; 0 is never.
            forked: whether it starts from a process that has imported everything.
            trace: a file for the names of all files that it opens.
            strike: the role of a process below it, the signal that it gets, and seconds `after` its start.
        """
        logs = {name: cwd.parent / f"{name}.txt" for name in ("stdout", "stderr")}
        for log in logs.values():
            log.unlink(missing_ok=True)
        request = {
            "argv": argv,
            "cwd": str(cwd),
            "env": environment,
            "powerless": powerless,
            "gone": gone,
            "stop_after": stop_after,
            "most_seconds": MOST_SECONDS + stop_after + (TRAINING_GRACE if argv[:1] == ("train",) else 0),
            "most_bytes": MOST_BYTES,
            "grace": TRAINING_GRACE if argv[:1] == ("train",) else GRACE_SECONDS,
            "fresh": not forked,
            "trace": str(trace or ""),
            "strike": strike,
            **{name: str(path) for name, path in logs.items()},
        }
        found = self._ask(_KINDS.get(argv[0] if argv else "", "data"), request)
        texts = {name: path.read_text(encoding="utf-8", errors="replace") for name, path in logs.items()}
        return Ended(**found, **texts)

    def _ask(self, kind: str, request: dict[str, Any]) -> dict[str, Any]:
        zygote = self._zygotes.get(kind)
        if zygote is None or zygote.poll() is not None:
            zygote = self._zygotes[kind] = self._start(kind)
        assert zygote.stdin and zygote.stdout
        zygote.stdin.write(json.dumps(request) + "\n")
        zygote.stdin.flush()
        found: dict[str, Any] = json.loads(zygote.stdout.readline())
        return found

    def _start(self, kind: str) -> subprocess.Popen[str]:
        paths = (ROOT / "tests", self.code / "components", self.code / "pipelines")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_OURS)}
        zygote = subprocess.Popen(
            [sys.executable, "-m", "hostile.zygote", kind],
            env={**kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert zygote.stdout
        json.loads(zygote.stdout.readline())
        return zygote

    def close(self) -> None:
        """End what forks."""
        for zygote in self._zygotes.values():
            assert zygote.stdin
            zygote.stdin.close()
            zygote.wait()
        self._zygotes.clear()
