"""Tests of what torch.compile does, each in a process of its own: the suite switches it off for DeepSpeed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path


def with_compiling(file: str, call: str) -> None:
    """Call a function of a test's file in a process that may compile.

    Args:
        file: the test's `__file__`.
        call: `function()`.
    """
    off = {"TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"}
    environment = {k: v for k, v in os.environ.items() if k not in off}
    environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of compilers beside a busy machine
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(file).parent), *sys.path])
    with socket.socket() as free:  # the suite's own rank listens at MASTER_PORT already
        free.bind(("127.0.0.1", 0))
        environment["MASTER_PORT"] = str(free.getsockname()[1])
    command = [sys.executable, "-c", f"import {Path(file).stem} as file; file.{call}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
