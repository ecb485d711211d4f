"""The faults of the drill: each sets its scene, then breaks one thing, and says which alert must come."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from servers import s3
from servers.fault_proxy import FaultProxy, Faults

from drill.training import Training, module_of, tiny_cache

_TMPFS_BYTES = 256 << 20


class NotHere(Exception):
    """This machine lacks what the fault needs; says what."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is watched, and how it is broken."""

    target: str
    break_it: Callable[[], float]
    """Returns when the fault began, Unix seconds."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault."""

    name: str
    what: str
    alert: str
    waits: str
    """What the rule waits for before it fires, at its real times."""
    scene: Callable[[Path], contextlib.AbstractContextManager[Scene]]
    """Folder -> what is watched."""


@contextmanager
def signalled_rank(folder: Path, number: signal.Signals) -> Iterator[Scene]:
    """A rank of two gets a signal that it cannot handle."""
    store = tiny_cache().make_store(folder / "store")
    with Training(folder / "run", str(store), {}) as training:

        def send() -> float:
            os.kill(training.rank(1), number)
            return time.time()

        yield Scene(target=training.target, break_it=send)


@contextmanager
def poisoned_batch(folder: Path) -> Iterator[Scene]:
    """The loss of one micro batch becomes NaN in one rank; what follows from it is the product's own."""
    store, trigger = tiny_cache().make_store(folder / "store"), folder / "poison"
    site = module_of("components/train/faults.py").install(
        folder / "site", f"faults.poison_once({str(trigger)!r})"
    )
    with Training(folder / "run", str(store), {"PYTHONPATH": site}) as training:

        def poison() -> float:
            trigger.touch()
            return time.time()

        yield Scene(target=training.target, break_it=poison)


@contextmanager
def throttled_store(folder: Path) -> Iterator[Scene]:
    if reason := s3.absent():
        raise NotHere(reason)
    server = s3.borrow(f"drill-{os.getpid()}")
    bucket = server.new_bucket()
    try:
        with FaultProxy(server.endpoint, Faults(rates={}), 1) as proxy:
            environment = server.environment(proxy.endpoint)
            before = {name: os.environ.get(name) for name in environment}
            os.environ.update(environment)
            try:
                tiny_cache().make_store(f"s3://{bucket}/store")
            finally:
                for name, value in before.items():
                    os.environ.pop(name)
                    os.environ.update({name: value} if value is not None else {})
            where = f"s3://{bucket}/store"
            with Training(folder / "run", where, environment, checkpoint_seconds=1) as training:

                def throttle() -> float:
                    proxy.faults = Faults(rates={"status": 0.25})
                    return time.time()

                yield Scene(target=training.target, break_it=throttle)
                proxy.faults = Faults(rates={})
    finally:
        server.remove_bucket(bucket)


@contextmanager
def full_disk(folder: Path) -> Iterator[Scene]:
    place = folder / "disk"
    place.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_TMPFS_BYTES}", "drill", str(place)],
            capture_output=True,
            text=True,
        )
        if os.geteuid() == 0 and shutil.which("mount")
        else None
    )
    if mounted is None or mounted.returncode:
        why = mounted.stderr.strip() if mounted else "this user may not mount"
        raise NotHere(f"a small disk (tmpfs) needs root's rights: {why}")
    try:
        store = tiny_cache().make_store(place / "store")
        with Training(folder / "run", str(store), {}) as training:

            def fill() -> float:
                usage = shutil.disk_usage(place)
                with (place / "filler").open("wb") as file:
                    file.write(bytes(usage.free - usage.total // 20))
                return time.time()

            yield Scene(target=training.target, break_it=fill)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


FAULTS = (
    Fault(
        name="frozen",
        what="a rank is frozen (SIGSTOP)",
        alert="YanmoTrainStalled",
        waits="no sign of life for 2 min, then 1 min",
        scene=functools.partial(signalled_rank, number=signal.SIGSTOP),
    ),
    Fault(
        name="poisoned",
        what="a batch is poisoned: its loss is not a number",
        alert="YanmoTrainNonFinite",
        waits="nothing",
        scene=poisoned_batch,
    ),
    Fault(
        name="throttled",
        what="the store answers a quarter of the requests with 500, 503 or 429",
        alert="YanmoStoreErrors",
        waits="more than 5 % of 5 min, for 5 min",
        scene=throttled_store,
    ),
    Fault(
        name="killed",
        what="a rank is killed (SIGKILL)",
        alert="YanmoStageFailed",
        waits="nothing",
        scene=functools.partial(signalled_rank, number=signal.SIGKILL),
    ),
    Fault(
        name="disk",
        what="the disk of the work fills up to 95 %",
        alert="YanmoDiskNearlyFull",
        waits="2 min",
        scene=full_disk,
    ),
)
