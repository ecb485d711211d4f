"""A process that has imported Yanmo once and forks a child for each command: 20 ms instead of 300.

It reads one JSON document a line from stdin and answers each with one on stdout. The child is a real process:
it has its own session, user, folder and environment, ends with the command's exit code, and the kernel says
what it took. Modules are imported before the fork, so an error at import is not seen here; a drawn part of
the cases is run by `python -m` for that.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from hostile.forked_worker import fork_workers

DATA = (
    *("yanmo.options", "yanmo.common", "yanmo.store", "yanmo.stage", "yanmo.formats", "yanmo.resolve"),
    *("yanmo.curate", "yanmo.balance", "yanmo.tokenize", "yanmo.promote", "yanmo.chinese"),
    *("yanmo.tools.store", "yanmo.tools.cache", "yanmo.tools.runs"),
)
TORCH = (*DATA, "yanmo.model", "yanmo.train", "yanmo.evaluate", "yanmo.tools.tokenizer", "yanmo.tools.model")
KINDS = {"data": DATA, "torch": TORCH, "cluster": (*DATA, "yanmo_pipelines")}
"""What kind of commands is forked -> what is imported for them."""
WATCH_SECONDS = 0.1
_POWERS = (0, 1, 2, 3)
"""CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER of linux/capability.h."""
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAPBSET_DROP, _CAPABILITY_VERSION_3 = 24, 0x20080522
GRACE_SECONDS = 10.0
"""How long what a command started may outlive it."""


def main() -> None:
    """Import, then fork for each request until stdin ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for package in KINDS[sys.argv[1]]:
        _import_all(package)
    if sys.argv[1] == "torch":
        _import_deepspeed()
    for module, _ in importlib.import_module("yanmo.cli").COMMANDS.values():
        if not hasattr(sys.modules.get(module), "__path__"):  # it is run as __main__: runpy warns otherwise
            sys.modules.pop(module, None)
    gc.freeze()  # a collection in a child would touch, so copy, every page
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)


def _import_all(package: str) -> None:
    """The package and what is in it, without what only runs; an older commit may lack some of it."""
    try:
        found = importlib.import_module(package)
    except ModuleNotFoundError:
        return
    for module in pkgutil.walk_packages(getattr(found, "__path__", []), f"{package}."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def _import_deepspeed() -> None:
    """As a training does; an older commit or another machine may have it elsewhere or not at all."""
    with contextlib.suppress(Exception):
        importlib.import_module("yanmo.train.backends.zero").import_deepspeed("cpu", False)
    for name in ("DS_ACCELERATOR", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        os.environ.pop(name, None)  # what is started as a process of its own decides by itself


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Run one command to its end; says how it ended."""
    began = time.monotonic()
    pid = os.fork()
    if not pid:
        _child(request)
    found = _watch(pid, request, began)
    found["left"] = _end_others()
    return found


def _child(request: dict[str, Any]) -> None:
    """Become the command; does not return."""
    code = 1
    try:
        os.setsid()
        _open_streams(request)
        if request["powerless"]:
            drop_powers()
        for name in [n for n in os.environ if n.startswith(("AWS_", "YANMO_"))]:
            del os.environ[name]
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        if request["gone"]:
            Path(request["cwd"]).rmdir()
        if request["trace"]:
            _tell_opened(request["trace"])
        if request["fresh"]:
            os.execv(sys.executable, [sys.executable, "-m", "yanmo.cli", *request["argv"]])
        # What is struck is found by its command line, what is traced keeps a file open, and torch reads at
        # its import whether it may compile.
        traced = request["strike"] or request["trace"]
        if not traced and not any("compile" in word for word in request["argv"]):
            fork_workers()
        sys.argv = ["yanmo", *request["argv"]]
        from yanmo.cli import main as run

        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code)


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


def _tell_opened(path: str) -> None:
    """Write the name of every file that Python opens from now on to `path`."""
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, os.PathLike)):
            os.write(target, f"{os.fspath(arguments[0])}\n".encode(errors="replace"))

    sys.addaudithook(hook)


def _open_streams(request: dict[str, Any]) -> None:
    """Nothing to read, and files for what is said."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, path in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        opened = os.open(path, flags if number else os.O_RDONLY, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _watch(pid: int, request: dict[str, Any], began: float) -> dict[str, Any]:
    """Wait for the end; SIGTERM after `stop_after`, SIGKILL after `most_seconds` or at `most_bytes`."""
    found: dict[str, Any] = {"stopped": False, "killed": ""}
    patience = _patience()
    looked, stopped_at, wait, worked = began, 0.0, 0.001, 0.0
    strike = _Strike(request["strike"]) if request["strike"] else None
    while True:
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            break
        now = time.monotonic()
        if now - looked > WATCH_SECONDS:
            looked, size, worked = now, _bytes_of(_tree(pid)), _cpu_seconds(_tree(pid))
            if size > request["most_bytes"]:
                found["killed"] = f"it used {size >> 20} MiB of memory"
        if strike:
            strike.look(pid, now)
        at_work_for = max((now - began) / patience, worked)  # it waits, or it has worked for long enough
        if request["stop_after"] and not stopped_at and at_work_for > request["stop_after"]:
            stopped_at, found["stopped"] = now, True
            os.kill(pid, signal.SIGTERM)
        if stopped_at and now - stopped_at > patience * request["grace"]:
            found["killed"] = f"it did not end within {request['grace']:.0f} s of SIGTERM"
        if now - began > patience * request["most_seconds"]:
            found["killed"] = f"it did not end within {request['most_seconds']:.0f} s"
        if found["killed"]:
            _kill(_tree(pid))
            _, status, used = os.wait4(pid, 0)
            break
        time.sleep(wait)
        wait = min(wait * 1.5, 0.02)
    if strike:
        strike.release()
    end = time.monotonic()
    return {
        **found,
        "code": os.waitstatus_to_exitcode(status),
        "seconds": (end if not stopped_at else end - stopped_at + began) - began,
        "cpu": used.ru_utime + used.ru_stime,
        "bytes": used.ru_maxrss << 10,
    }


def _patience() -> float:
    """How much longer than on an idle machine anything may take now: others use this one too."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def role_of(pid: int) -> str:
    """What a process below a command is, by its command line and its parent's."""
    line, parent = _line_of(pid), _line_of(_parent_of(pid))
    if "multiprocessing.forkserver" in line:
        return "worker" if "multiprocessing.forkserver" in parent else "fork server"
    roles = {"resource_tracker": "tracker", "train.worker": "rank"}
    return next((role for mark, role in roles.items() if mark in line), "other")


def _line_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _parent_of(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


class _Strike:
    """A signal to the first process of a role, some time after it is first seen."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._role, self._after = asked["role"], asked["after"]
        first, _, then = asked["signal"].partition(" and ")
        self._signals = [getattr(signal, f"SIG{name}") for name in (first, then) if name]
        self._at = 0.0
        self._struck = 0

    def look(self, command: int, now: float) -> None:
        """Find the process; send what is due."""
        if not self._at:
            found = [pid for pid in _tree(command)[1:] if role_of(pid) == self._role]
            if not found:
                return
            self._struck, self._at = found[0], now + self._after
        if self._signals and now >= self._at:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._struck, self._signals.pop(0))
            self._at = now + 1.0

    def release(self) -> None:
        """Let it go on, if it is stopped: it could not even see that the command has ended."""
        if self._struck:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._struck, signal.SIGCONT)


def _tree(pid: int) -> list[int]:
    """The process and all that it and they started."""
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{one}/task").glob("*/children"):
                left += map(int, path.read_text().split())
    return found


def _bytes_of(pids: list[int]) -> int:
    """Memory that the largest of them holds."""
    found = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            found = max(found, int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096)
    return found


def _cpu_seconds(pids: list[int]) -> float:
    """CPU time of all of them so far."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _end_others() -> list[str]:
    """Kill what outlived the command, after a moment; its command lines.

    What loses its parent becomes a child of this process, in whatever session it is.
    """
    end = time.monotonic() + _patience() * GRACE_SECONDS
    while (left := _living()) and time.monotonic() < end:
        time.sleep(0.02)
    _kill(list(left))
    while _living():
        time.sleep(0.001)
    return list(left.values())


def _living() -> dict[int, str]:
    """Processes below this one, with their command lines; those that have ended are let go."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return {pid: _line_of(pid).strip() or "?" for pid in _tree(os.getpid())[1:]}


if __name__ == "__main__":
    main()
