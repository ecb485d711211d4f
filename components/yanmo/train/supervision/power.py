"""The GPUs' power limit during training: a quieter machine by day, full power by night.

It is a hint: setting it needs administrator rights, which few pods have. Where nvidia-smi is missing or
refuses, one warning says so and training goes on at the present limit. The old limit is restored at the
end.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)
_SECONDS = 20


@contextmanager
def power_limit(watts: int) -> Iterator[None]:
    """While inside, every visible GPU is asked to draw at most `watts`; 0 asks nothing."""
    before = _limits() if watts else {}
    if watts and not before:
        log.warning("a power limit of %d W was asked for, and nvidia-smi shows no GPU; no effect", watts)
    changed = {gpu: old for gpu, old in before.items() if _set(gpu, float(watts))}
    try:
        yield
    finally:
        for gpu, old in changed.items():
            _set(gpu, old)


def _limits() -> dict[str, float]:
    """GPU index -> its power limit in watts."""
    shown = _nvidia_smi("--query-gpu=index,power.limit", "--format=csv,noheader,nounits") or ""
    found = {}
    for line in shown.splitlines():
        gpu, _, watts = line.partition(",")
        try:
            found[gpu.strip()] = float(watts)
        except ValueError:  # [N/A]: it has no limit to set
            continue
    return found


def _set(gpu: str, watts: float) -> bool:
    done = _nvidia_smi("-i", gpu, "-pl", f"{watts:g}") is not None
    if done:
        log.info("GPU %s may draw %g W", gpu, watts)
    return done


def _nvidia_smi(*arguments: str) -> str | None:
    """What it prints; None where it is missing or refuses."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        text = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        log.warning("nvidia-smi %s: %s", " ".join(arguments), text.splitlines()[-1])
        return None
    return done.stdout
