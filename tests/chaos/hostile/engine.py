"""Runs one command as a person's shell would, watches it, and says how it ended."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.start import Run, start

MOST_SECONDS = 60.0
"""After this a command hangs, whatever it does."""
MOST_BYTES = 3 << 30
"""Above this a command is ended, so that the machine stays usable."""
GRACE_SECONDS, TRAINING_GRACE = 10.0, 130.0
"""How long a command may take to end after SIGTERM; a training may save for two minutes."""
_LOOK_SECONDS = 0.25
_POWERS = (0, 1, 2, 3)
"""CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER of linux/capability.h."""
_PR_CAPBSET_DROP, _CAPABILITY_VERSION_3 = 24, 0x20080522


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


def run(
    argv: tuple[str, ...],
    cwd: Path,
    environment: Mapping[str, str],
    *,
    powerless: bool = False,
    gone: bool = False,
    stop_after: float = 0.0,
) -> Ended:
    """Run `yanmo ARGV` in `cwd`, which is removed before where it is `gone`.

    Args:
        powerless: whether it must obey modes and owners, though it may run as root.
        stop_after: seconds until it is asked to end by SIGTERM; 0 is never.
    """

    def before() -> None:
        if powerless:
            drop_powers()
        if gone:
            os.rmdir(cwd)

    said = cwd.parent / "stdout.txt"
    with said.open("wb") as out:
        command = start(
            "yanmo.cli", argv, None, cwd.parent, {"OMP_NUM_THREADS": "1", **environment},
            cwd=cwd, stdout=out, preexec_fn=before if powerless or gone else None,
        )  # fmt: skip
    grace = TRAINING_GRACE if argv[:1] == ("train",) else GRACE_SECONDS
    code, seconds, used, peak, stopped, killed = _watched(command, stop_after, grace)
    command.see_them_end()
    stdout, stderr = said.read_text(encoding="utf-8", errors="replace"), command.text
    command.log.unlink()
    said.unlink()
    cpu = used.ru_utime + used.ru_stime
    # Its own count begins with the peak of the process that started it, which in pytest is a large one.
    if used.ru_maxrss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
        peak = used.ru_maxrss << 10
    return Ended(code, stdout, stderr, seconds, cpu, peak, stopped, killed, command.orphans)


def _watched(
    command: Run, stop_after: float, grace: float
) -> tuple[int, float, resource.struct_rusage, int, bool, str]:
    """Wait for the end; SIGTERM after `stop_after`, SIGKILL when it takes too long or too much.

    Returns:
        Exit code, seconds, resources, the most memory that was seen in one of its processes (bytes), whether
        it was stopped, and why it was killed.
    """
    pid, began, killed, patience = command.process.pid, command.started, "", _patience()
    stopped_at, looked, wait, peak = 0.0, began, 0.005, 0
    while not (ended := os.wait4(pid, os.WNOHANG))[0]:
        now = time.monotonic()
        if stop_after and not stopped_at and (now - began) / patience > stop_after:
            stopped_at = now
            os.kill(pid, signal.SIGTERM)
        if stopped_at and now - stopped_at > patience * grace:
            killed = f"it did not end within {grace:.0f} s of SIGTERM"
        if now - began > patience * (MOST_SECONDS + stop_after + grace):
            killed = f"it did not end within {MOST_SECONDS:.0f} s"
        if now - looked > _LOOK_SECONDS:
            looked = now
            size = max(map(_bytes_of, command.pids()), default=0)
            peak = max(peak, size)
            if size > MOST_BYTES:
                killed = f"it used {size >> 20} MiB of memory"
        if killed:
            command.kill_all()
            ended = os.wait4(pid, 0)
            break
        peak = max(peak, _bytes_of(pid))
        time.sleep(wait)
        wait = min(wait * 1.5, 0.02)
    command.process.returncode = code = os.waitstatus_to_exitcode(ended[1])
    return code, time.monotonic() - (stopped_at or began), ended[2], peak, bool(stopped_at), killed


def _patience() -> float:
    """How much longer than on an idle machine anything may take now: others use this one too."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _bytes_of(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return 0


def drop_powers() -> None:
    """Become a root that must obey modes and owners as anybody else, also in what it starts.

    Another user could not read this Python where it lies below /root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    kept = ~sum(1 << power for power in _POWERS) & 0xFFFFFFFF
    for power in _POWERS:
        libc.prctl(_PR_CAPBSET_DROP, power, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0, os.strerror(ctypes.get_errno())
    data[0], data[1], data[2] = data[0] & kept, data[1] & kept, data[2] & kept
    assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())
