"""Makes each Python process tell what it is about to write, and lets its clock jump. Not part of the product.

Python imports a module of this name at start-up; chaos.start puts this folder on PYTHONPATH. CPython raises
audit events (PEP 578) before a file is opened, linked, renamed or removed and before a request is sent, in
the stage itself, its worker processes and a training's ranks alike. So a kill can be aimed at the moment
before a commit, and the stages need no hook.

    YANMO_WITNESS        a FIFO; one line per event, `seconds pid event name` (seconds of the monotonic clock)
    YANMO_CLOCK_OFFSET   seconds that this process's wall clock is wrong by; `1000@MANIFEST` jumps when the
                         first event whose name holds MANIFEST comes
"""

import contextlib
import os
import sys


def _watch(path: str) -> None:
    import time

    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(handle, True)
    forks = {"pid": os.getpid()}
    os.register_at_fork(after_in_child=lambda: forks.update(pid=os.getpid()))

    def tell(event: str, name: object) -> None:
        text = os.fsdecode(name)[-600:] if isinstance(name, (str, bytes)) else str(name)
        line = f"{time.monotonic():.6f} {forks['pid']} {event} {text}\n".replace("\0", "")
        with contextlib.suppress(OSError):
            os.write(handle, line.encode(errors="replace"))  # below PIPE_BUF: lines do not mix

    _hear(tell)


def _hear(tell) -> None:  # type: ignore[no-untyped-def]
    """Call `tell(event, name)` for every write, and every file opened on the way there."""

    def hook(event: str, args: tuple) -> None:  # type: ignore[type-arg]
        if event == "open":
            if isinstance(args[0], (str, bytes)):
                tell("open", args[0])
        elif event in ("os.rename", "os.link"):
            tell(event, args[1])
        elif event in ("os.remove", "os.rmdir", "shutil.rmtree"):
            tell(event, args[0])
        elif event == "http.client.send" and isinstance(args[1], bytes):
            line = args[1].split(b"\r\n", 1)[0]
            if line.endswith(b"HTTP/1.1"):
                method, target = line.split()[:2]
                tell(method.decode(), target.partition(b"?")[0])

    sys.addaudithook(hook)


def _jump(setting: str) -> None:
    import datetime
    import time

    seconds, _, where = setting.partition("@")
    real_time, state = time.time, {"offset": 0.0 if where else float(seconds)}

    def wrong_time() -> float:
        return real_time() + state["offset"]

    class WrongDatetime(datetime.datetime):
        @classmethod
        def now(cls, tz=None):  # type: ignore[no-untyped-def]
            return cls.fromtimestamp(wrong_time(), tz)

        @classmethod
        def utcnow(cls):  # type: ignore[no-untyped-def]
            return cls.fromtimestamp(wrong_time(), datetime.UTC).replace(tzinfo=None)

    # What pickles one has to find it under its own name.
    WrongDatetime.__name__ = WrongDatetime.__qualname__ = "datetime"
    WrongDatetime.__module__ = "datetime"

    def listen(event: str, name: object) -> None:
        if not state["offset"] and where in os.fsdecode(name):  # type: ignore[arg-type]
            state["offset"] = float(seconds)

    time.time = wrong_time
    datetime.datetime = WrongDatetime  # type: ignore[misc]
    if where:
        _hear(listen)


if os.environ.get("YANMO_WITNESS"):
    _watch(os.environ["YANMO_WITNESS"])
if os.environ.get("YANMO_CLOCK_OFFSET"):
    _jump(os.environ["YANMO_CLOCK_OFFSET"])
