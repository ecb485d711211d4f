"""Breaks small trainings beside a real Prometheus and Alertmanager: which alert comes, when, and no other.

The rules are those of manifests/, their times divided by ten. Each fault has a training and watchers of its
own, so that nothing is left from the one before.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from servers import s3
from servers.fault_proxy import FaultProxy, Faults

from chaos.disk import small_disk
from chaos.drill.scaled import scaled
from chaos.drill.training import Training, module_of, tiny_cache
from chaos.drill.watchers import Watchers, missing
from chaos.ground import Ground
from chaos.plan import Case, Skip
from chaos.start import ROOT

RULES = ROOT / "manifests/components/prometheus/rules.yaml"
FACTOR = 10.0
QUIET_SECONDS, AFTER_SECONDS = 10.0, 10.0
"""How long nothing may fire before the fault, and how long is watched on after its alert came."""
LATE_SECONDS = 300.0
"""What has not come by then does not come."""


@dataclass(frozen=True)
class Fault:
    """One fault."""

    name: str
    alert: str
    scene: Callable[[Path], AbstractContextManager[tuple[str, Callable[[], None]]]]
    """Folder -> what is scraped, and how it is broken."""


@contextmanager
def signalled_rank(folder: Path, number: signal.Signals) -> Iterator[tuple[str, Callable[[], None]]]:
    """A rank of two gets a signal that it cannot handle."""
    store = tiny_cache().make_store(folder / "store")
    with Training(folder / "run", str(store), {}) as training:
        yield training.target, lambda: os.kill(training.rank(1), number)


@contextmanager
def poisoned_batch(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The loss of one micro batch becomes NaN in one rank; what follows from it is the product's own."""
    store, trigger = tiny_cache().make_store(folder / "store"), folder / "poison"
    call = f"faults.poison_once({str(trigger)!r})"
    site = module_of("components/train/faults.py").install(folder / "site", call)
    with Training(folder / "run", str(store), {"PYTHONPATH": f"{site}:{ROOT}/components"}) as training:
        yield training.target, trigger.touch


@contextmanager
def throttled_store(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The store answers a quarter of the requests with 500, 503 or 429."""
    if reason := s3.absent():
        raise Skip(reason)
    server = s3.borrow(f"chaos-{os.getpid()}")
    bucket = server.new_bucket()
    try:
        with FaultProxy(server.endpoint, Faults(rates={}), 1) as proxy:
            environment, before = server.environment(proxy.endpoint), dict(os.environ)
            os.environ.update(environment)
            try:
                tiny_cache().make_store(f"s3://{bucket}/store")
            finally:
                os.environ.clear()
                os.environ.update(before)
            where = f"s3://{bucket}/store"
            with Training(folder / "run", where, environment, checkpoint_seconds=1) as training:
                throttled = Faults(rates={"status": 0.25})
                yield training.target, lambda: setattr(proxy, "faults", throttled)
                proxy.faults = Faults(rates={})
    finally:
        server.remove_bucket(bucket)


@contextmanager
def full_disk(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """The disk of the work fills up to 95 %."""
    with small_disk(folder / "disk") as place:
        store = tiny_cache().make_store(place / "store")
        with Training(folder / "run", str(store), {}) as training:

            def fill() -> None:
                usage = shutil.disk_usage(place)
                (place / "filler").write_bytes(bytes(usage.free - usage.total // 20))

            yield training.target, fill


FAULTS = (
    Fault("a rank is killed", "YanmoStageFailed", functools.partial(signalled_rank, number=signal.SIGKILL)),
    Fault("a rank is frozen", "YanmoTrainStalled", functools.partial(signalled_rank, number=signal.SIGSTOP)),
    Fault("a loss is not a number", "YanmoTrainNonFinite", poisoned_batch),
    Fault("the store answers 503", "YanmoStoreErrors", throttled_store),
    Fault("the disk is nearly full", "YanmoDiskNearlyFull", full_disk),
)


def cases(ground: Ground) -> Iterator[Case]:
    """Each fault once, in a brief run the first two; it has a store of its own, so only beside a folder."""
    if ground.kind == "file":
        for fault in FAULTS[: ground.times(len(FAULTS), 2)]:
            yield Case("drill", fault.name, functools.partial(_tried, fault, ground.folder))


def _tried(fault: Fault, folder: Path) -> tuple[str, list[str]]:
    if reason := missing():
        raise Skip(reason)
    folder = folder / f"drill-{fault.alert}"
    folder.mkdir()
    rules = scaled(yaml.safe_load(RULES.read_text(encoding="utf-8")), FACTOR)
    with (
        fault.scene(folder) as (target, break_it),
        Watchers(folder / "watchers", rules, [target]) as watchers,
    ):
        _wait_until_scraped(watchers)
        time.sleep(QUIET_SECONDS)
        if before := watchers.fired():
            return "not broken", [f"fired before the fault: {', '.join(sorted(before))}"]
        break_it()
        began = time.time()
        alert = _arrival(watchers, fault.alert, began)
        delay = time.time() - began
        time.sleep(AFTER_SECONDS if alert else 0.0)
        others = sorted(watchers.fired() - {fault.alert})
    found = [f"{name} fired too" for name in others]
    if alert is None:
        return "no alert", [*found, f"{fault.alert} did not come within {LATE_SECONDS:.0f} s"]
    return f"{fault.alert} ({alert['labels']['severity']}) after {delay:.1f} s, times / {FACTOR:g}", found


def _wait_until_scraped(watchers: Watchers) -> None:
    end = time.monotonic() + 60
    while not watchers.ask("up == 1"):
        if time.monotonic() > end:
            raise RuntimeError("Prometheus does not reach what it watches")
        time.sleep(0.1)


def _arrival(watchers: Watchers, name: str, began: float) -> dict[str, Any] | None:
    while time.time() < began + LATE_SECONDS:
        if alert := watchers.arrived().get(name):
            return alert
        time.sleep(0.1)
    return None
