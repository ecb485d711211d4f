"""Which memory and which GPUs this machine has; without torch, so that the supervisor can ask."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from yanmo.common.control_group import ControlGroup
from yanmo.model.flash_limits import Capability


def machine_memory() -> int:
    """Return the bytes of this machine, or of the container's limit where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = Path(path).read_text(encoding="ascii").strip() if os.access(path, os.R_OK) else ""
        if text.isdigit():
            total = min(total, int(text))
    return total


def memory_kills() -> int:
    """Return how many processes of this container were killed so far for lack of memory.

    Files: kernel.org, cgroup-v2.rst (memory.events) and cgroup-v1/memory.rst (memory.oom_control).
    """
    group = ControlGroup("memory", "memory.limit_in_bytes", "memory.max")
    text = group.read("memory.oom_control" if group.is_v1 else "memory.events")
    lines = (line.split() for line in text.splitlines())
    return next((int(words[1]) for words in lines if words[:1] == ["oom_kill"]), 0)


@cache
def _asked(fields: str, path: str) -> str:
    """Return what the nvidia-smi on a PATH says of each GPU; "" without it."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def gpu_capability() -> Capability | None:
    """Return the lowest compute capability of the GPUs; None where nobody can say."""
    found = [
        line.strip().split(".") for line in _asked("compute_cap", os.environ.get("PATH", "")).splitlines()
    ]
    known = [(int(x[0]), int(x[1])) for x in found if len(x) == 2 and x[0].isdigit() and x[1].isdigit()]
    return min(known, default=None)


def smallest_gpu() -> tuple[str, int]:
    """Return name and bytes of the smallest GPU; ("", 0) without nvidia-smi."""
    text = _asked("name,memory.total", os.environ.get("PATH", ""))
    found = [line.rsplit(",", 1) for line in text.splitlines() if "," in line]
    sizes = [(int(size) << 20, name.strip()) for name, size in found if size.strip().isdigit()]
    return (min(sizes)[1], min(sizes)[0]) if sizes else ("", 0)


def gpu_name() -> str:
    """Return name of the smallest GPU; "" where there is none."""
    return smallest_gpu()[0]
