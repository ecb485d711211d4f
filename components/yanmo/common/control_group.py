"""This process's control group, by which a container's limits are set: files, CPUs, memory.

Files: kernel.org, admin-guide/cgroup-v2.rst (cpu.max, memory.max, memory.stat), scheduler/sched-bwc.rst
(cpu.cfs_quota_us) and cgroup-v1/memory.rst (memory.limit_in_bytes, memory.stat).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from pathlib import Path

from yanmo.common.words import plural

log = logging.getLogger(__name__)
ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where control groups are, and which is this process's own."""


class ControlGroup:
    """Its files about one resource, by either version of control groups."""

    def __init__(self, controller: str, v1: str, v2: str, root: Path = ROOT, own: Path = OWN) -> None:
        """Args:
        controller: memory, cpu.
        v1, v2: a file that the group has, by the two versions.
        """
        self.is_v1 = (root / controller).is_dir()
        base = root / controller if self.is_v1 else root
        inside = base / _path_of(own, controller if self.is_v1 else "").lstrip("/")
        # A container sees only its own.
        self._folder = inside if (inside / (v1 if self.is_v1 else v2)).is_file() else base

    def read(self, name: str) -> str:
        """Return the text of one of its files; "" where there is none."""
        with contextlib.suppress(OSError):
            return (self._folder / name).read_text(encoding="ascii")
        return ""


def _path_of(own: Path, controller: str) -> str:
    """Return the group's place below its hierarchy: a line `4:memory:/a/b`, or `0::/a/b` of version 2."""
    with contextlib.suppress(OSError):
        for line in own.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                return path
    return ""


def usable_cpus(root: Path = ROOT, own: Path = OWN) -> int:
    """CPUs that this process may use, at least 1: by its affinity, and no more than its container's limit.

    A pod of 4 CPUs on a node of 64 has an affinity of 64. Of a limit of 1.5 both CPUs are of use.
    """
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    group = ControlGroup("cpu", "cpu.cfs_quota_us", "cpu.max", root, own)
    if group.is_v1:
        words = [group.read("cpu.cfs_quota_us"), group.read("cpu.cfs_period_us")]
    else:
        words = group.read("cpu.max").split()
    numbers = [int(word) for word in words if word.strip().isdigit()]  # "max" and -1 are no limit
    if len(numbers) != 2 or not all(numbers):
        return here
    return min(here, math.ceil(numbers[0] / numbers[1]))


_NO_LIMIT = 1 << 60
"""Version 1 has a number of about 2^63 where there is no limit."""


def memory_group(root: Path = ROOT, own: Path = OWN) -> ControlGroup:
    """Return the files about memory."""
    return ControlGroup("memory", "memory.limit_in_bytes", "memory.max", root, own)


def memory_limit(group: ControlGroup) -> int | None:
    """Return the bytes that this process's container may hold; None without a limit."""
    limit = group.read("memory.limit_in_bytes" if group.is_v1 else "memory.max").strip()
    return int(limit) if limit.isdigit() and int(limit) < _NO_LIMIT else None


def free_memory(root: Path = ROOT, own: Path = OWN) -> int | None:
    """Return the bytes of this process's container that its processes do not hold; None without a limit.

    Pages of files do not count: the system takes them back.
    """
    group = memory_group(root, own)
    stat = dict(line.split() for line in group.read("memory.stat").splitlines())
    used, limit = stat.get("total_rss" if group.is_v1 else "anon", "0"), memory_limit(group)
    return None if limit is None else max(0, limit - int(used))


def workers_for(asked: int) -> int:
    """As many workers as were asked for; where that is 0, one for each CPU that this process may use."""
    cpus = usable_cpus()
    log.info("%d at work at a time at most: %s may be used here", asked or cpus, plural(cpus, "CPU"))
    return asked or cpus
