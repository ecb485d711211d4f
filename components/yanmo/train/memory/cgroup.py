"""What the system says of the memory of this container, by its control group; nothing where it has no limit.

Files: kernel.org, admin-guide/cgroup-v2.rst (memory.max, memory.stat, memory.events) and
cgroup-v1/memory.rst (memory.limit_in_bytes, memory.stat, memory.oom_control).
"""

from __future__ import annotations

import os
from pathlib import Path

from yanmo.common.control_group import OWN, ROOT, ControlGroup

_HELD = {"anon", "shmem", "total_rss", "total_shmem"}
"""What cannot be given back: what processes allocated, and files in /dev/shm. The cache of files can."""


class MemoryGroup(ControlGroup):
    """This process's memory."""

    def __init__(self, root: Path = ROOT, own: Path = OWN) -> None:
        super().__init__("memory", "memory.limit_in_bytes", "memory.max", root, own)
        self._limit_file = "memory.limit_in_bytes" if self.is_v1 else "memory.max"
        self._events_file = "memory.oom_control" if self.is_v1 else "memory.events"

    def limit(self) -> int:
        """Bytes that this container may use; 0 where that is all that the machine has."""
        text = self.read(self._limit_file).strip()
        found = int(text) if text.isdigit() else 0
        return found if found < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") else 0

    def used(self) -> int:
        """Bytes of it that are in use and cannot be given back."""
        lines = (line.split() for line in self.read("memory.stat").splitlines())
        return sum(int(words[1]) for words in lines if len(words) == 2 and words[0] in _HELD)

    def kills(self) -> int:
        """How many processes were killed in it so far for lack of memory."""
        lines = (line.split() for line in self.read(self._events_file).splitlines())
        return next((int(words[1]) for words in lines if words[:1] == ["oom_kill"]), 0)
