"""Trainings in processes of their own, as a user starts them: started, waited for, and read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from yanmo.options.fields import flag
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer


def command(store: Path, options: dict[str, Any]) -> list[str]:
    flags = [f"{flag(name)}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "yanmo.train", f"--store={store}", "--metrics-port=-1", *flags]


def environment(site: str) -> dict[str, str]:
    """Return one in which every Python process finds the sitecustomize of `faults.install` first."""
    return (
        {**os.environ, "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}"} if site else {**os.environ}
    )


def stage(
    store: Path, options: dict[str, Any], site: str = "", **more: Any
) -> subprocess.CompletedProcess[str]:
    """Train to the end."""
    given = {"env": environment(site), "timeout": 560, **more}
    return subprocess.run(command(store, options), capture_output=True, text=True, **given)


def model_of(store: Path, pointer: str = "train") -> Output:
    opened = open_store(str(store))
    reference = read_pointer(opened, "dev", pointer)
    assert reference is not None
    return open_reference(opened, reference)


def lines_of(output: Output) -> list[dict[str, Any]]:
    return [json.loads(x) for x in output.path("metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def losses_of(output: Output) -> list[float]:
    return [line["loss"] for line in lines_of(output) if "loss" in line]


def wait_for(what: Callable[[], Any], seconds: float = 300) -> Any:
    """Return the first true answer of `what`."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def begun(store: Path, step: int) -> Path | None:
    """Return the folder of the run, once its metrics have that step."""
    for path in store.glob("runs/train/*/metrics.jsonl"):
        if f'"step": {step},' in path.read_text(encoding="utf-8"):
            return path.parent
    return None
