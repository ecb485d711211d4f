"""Which code and which processor made an output: a record, never part of a key or of a content digest.

Last digits of a training follow the processor's kind and torch's version, so a figure that is compared with
another machine's needs both with it.
"""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path

import yanmo

_COMMIT = "YANMO_COMMIT"
"""What images/build.sh writes into an image: the commit that it was built from."""


def made_by() -> dict[str, str]:
    """Processor, torch and Yanmo, as a person would write them; "" where nobody says."""
    return {"processor": processor(), "torch": _version("torch"), "yanmo": code()}


def processor() -> str:
    """Return the processor's model."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next(names, "") or platform.machine()


@functools.cache
def code() -> str:
    """Return the commit of the checkout or image that runs, `-dirty` where files differed, or the version."""
    root = Path(yanmo.__file__).resolve().parents[2]
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=20
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError):  # no git here, or a checkout of somebody else's
            pass
    return os.environ.get(_COMMIT) or _version("yanmo")


def _version(package: str) -> str:
    import importlib.metadata  # 15 ms, and the help of many commands comes by this module

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
