"""What a stage's process measures, held until it is scraped: `Telemetry`.

Served by the supervisor of a stage (endpoint.py), so that a stalled or dead worker stays visible. Only what
is declared (declaration.py) can be set, with its own labels and no more values of them than are allowed.

A measurement that can grow old by itself (an age, a process's memory) is made when it is asked for: a
`source` is called before each answer. Where a source fails the rest is served without it.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from yanmo.common import waiting
from yanmo.common.errors import exit_code
from yanmo.common.logs import forget_progress, progress
from yanmo.stage.declaration import OTHER, Label, Metric
from yanmo.stage.endpoint import Endpoint
from yanmo.stage.shared_metrics import STATES, declared
from yanmo.store.objects import traffic

log = logging.getLogger(__name__)
Figure = tuple[str, float, Mapping[str, str]]
"""Metric, value, labels."""
_MOST_CHARACTERS = 120
"""Longest value of a label that the data say."""


class Telemetry:
    """The metrics of one run of one stage; as a context it also serves them."""

    def __init__(
        self,
        stage: str,
        metrics: Iterable[Metric] = (),
        *,
        run_id: str = "",
        port: int = -1,
        everywhere: bool = False,
        wait_seconds: float = 0.0,
    ) -> None:
        """Args:
        stage: its name.
        metrics: its own, besides those of every stage.
        run_id: id of the pipeline run.
        port: TCP port to serve on; 0 a free one, -1 none. A busy one is replaced by a free one.
        everywhere: on all addresses of this machine, and not on its loopback alone.
        wait_seconds: longest wait at the end for one more scrape, where there were some.
        """
        self.own_metrics = tuple(metrics)
        every = dict(declared(stage, self.own_metrics)).values()
        self._metrics = {(each.room or stage, each.name): each for each in every}
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._seen: dict[tuple[Metric, str], set[str]] = {}
        self._lock = threading.RLock()
        self._sources: list[tuple[Callable[[], None], bool]] = []
        self._told: set[str] = set()
        self.registry = CollectorRegistry()
        self.registry.register(_Collected(self))
        self.endpoint = Endpoint(self.registry, port, everywhere) if port >= 0 else None
        self.recorded: Callable[[], str] | None = None
        """Reads the record of the run that made the output, where that was not this one."""
        self.stage, self.wait_seconds = stage, wait_seconds
        self.source(self._of_every_stage, lasts=True)
        self._info = {"stage": stage, "run_id": run_id}
        self._start = time.time()
        self._begin()

    def _begin(self) -> None:
        self.count_from_zero()
        self.info()
        self.set("start_time_seconds", self._start)
        self.state("starting")
        self.add("tries", room="stage")

    def begin_again(self) -> None:
        """Forget what the stage has counted, before it is tried again; what it waited for stays."""
        forget_progress()
        with self._lock:
            self._sources = [(ask, lasts) for ask, lasts in self._sources if lasts]
            self._values = {m: values for m, values in self._values.items() if m.lasts}
            self._begin()

    def info(self, **labels: str) -> None:
        """Set what is known of the run besides, in the place of what was said before."""
        metric = self._metric("info", "run")
        with self._lock:
            self._info |= labels
            known = {label.name: self._info.get(label.name, "") for label in metric.labels}
            self._values[metric] = {tuple(printable(value) for value in known.values()): 1.0}

    def state(self, now: str) -> None:
        """Say what the stage does now: one of `STATES`."""
        assert now in STATES, now
        with self._lock:
            for state in STATES:
                self.set("state", float(state == now), room="stage", state=state)

    def ended(self, code: int) -> None:
        """Say how the stage has ended; where it paused, that is said already."""
        self.set("exit_code", code, room="stage")
        self.set("end_timestamp_seconds", time.time(), room="stage")
        if not code and self.value("state", room="stage", state="handing_over"):
            self.set("last_success_timestamp_seconds", time.time(), room="stage")
        if not self.value("state", room="stage", state="paused"):
            self.state("failed" if code else "done")

    def ended_by(self, error: BaseException) -> None:
        """The same, of a stage that an error ends."""
        code = error.code if isinstance(error, SystemExit) else exit_code(error)
        self.ended(code if isinstance(code, int) else 1)

    def _of_every_stage(self) -> None:
        for reason in waiting.REASONS:
            self.set("waiting_seconds", waiting.seconds_of(reason), reason=reason)
            self.set("waited_seconds", waiting.total_of(reason), reason=reason)
        for kind, counted in traffic().items():
            self.set("requests", counted.requests, room="store", kind=kind)
            self.set("retries", counted.retries, room="store", kind=kind)
        under_way = progress()
        for one in under_way:
            self.set("work_done", one.done, room="stage", work=one.name)
            self.set("work", one.total, room="stage", work=one.name)
        if any(one.done < one.total for one in under_way):
            self.set("work_age_seconds", min(one.age for one in under_way), room="stage")
        else:
            self.gone("work_age_seconds", room="stage")

    def set(self, name: str, value: float, /, *, room: str = "", **labels: str) -> None:
        """Set what the metric says from now on.

        Args:
            name: as it is declared.
            room: whose it is; "" for the stage's own.
            labels: all that it has.
        """
        metric = self._metric(name, room)
        with self._lock:
            self._values.setdefault(metric, {})[self._place(metric, labels)] = float(value)

    def add(self, name: str, by: float = 1.0, /, *, room: str = "", **labels: str) -> None:
        """Count `by` more; arguments as for `set`."""
        metric = self._metric(name, room)
        with self._lock:
            values = self._values.setdefault(metric, {})
            place = self._place(metric, labels)
            values[place] = values.get(place, 0.0) + by

    def gone(self, *names: str, room: str = "") -> None:
        """Show these metrics no longer, until they are set again."""
        with self._lock:
            for name in names:
                self._values.pop(self._metric(name, room), None)

    def value(self, name: str, /, *, room: str = "", **labels: str) -> float | None:
        """Return what the metric says now; None where it is not shown. Sources are not asked."""
        metric = self._metric(name, room)
        with self._lock:
            return self._values.get(metric, {}).get(self._place(metric, labels))

    def replace(self, names: Iterable[str], figures: Iterable[Figure], *, room: str = "") -> None:
        """Show of these metrics the given figures and no others, in one go."""
        with self._lock:
            self.gone(*names, room=room)
            for name, value, labels in figures:
                self.set(name, value, room=room, **labels)

    def count_from_zero(self) -> None:
        """Show counters before there is anything to count, as far as it is known which there will be.

        Prometheus sees no increase in a counter that begins with its first event.
        """
        with self._lock:
            for metric in self._metrics.values():
                if metric.kind == "counter" and all(label.values for label in metric.labels):
                    values = self._values.setdefault(metric, {})
                    for place in itertools.product(*(label.values for label in metric.labels)):
                        values.setdefault(place, 0.0)

    def source(self, ask: Callable[[], None], *, lasts: bool = False) -> None:
        """Have `ask` called before each answer: it sets what is measured only then; it must not wait.

        Args:
            lasts: whether also in another try of the stage.
        """
        self._sources.append((ask, lasts))

    def ask(self) -> None:
        """Have the sources set what they know now."""
        for ask, _ in self._sources.copy():
            try:
                ask()
            except Exception as error:  # the rest must be served, and no training end for a figure
                if repr(error) not in self._told:
                    self._told.add(repr(error))
                    log.warning("a metric cannot be measured: %r", error)

    def _metric(self, name: str, room: str) -> Metric:
        return self._metrics[room or self.stage, name]

    def _place(self, metric: Metric, labels: dict[str, str]) -> tuple[str, ...]:
        """Return the values of its labels, in order."""
        if labels.keys() != {label.name for label in metric.labels}:
            raise KeyError(f"{metric.name} has the labels {[label.name for label in metric.labels]}")
        return tuple(self._allowed(metric, label, labels[label.name]) for label in metric.labels)

    def _allowed(self, metric: Metric, label: Label, value: str) -> str:
        if label.values:
            return value if value in label.values else OTHER
        value, seen = printable(value), self._seen.setdefault((metric, label.name), set())
        if value not in seen and len(seen) >= label.most:
            return OTHER
        seen.add(value)
        return value

    def families(self, wanted: Callable[[Metric], bool] = lambda metric: True) -> Iterator[Family]:
        """Return what is shown now of the metrics that are wanted, as Prometheus' client wants it."""
        with self._lock:
            shown = {metric: dict(values) for metric, values in self._values.items()}
        for (room, name), metric in self._metrics.items():
            if (values := shown.get(metric)) and wanted(metric):
                kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                labels = [label.name for label in metric.labels]
                family = kind(f"yanmo_{room}_{name}", metric.help, labels=labels)
                for place, value in values.items():
                    family.add_metric(place, value)
                yield family

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()

    @property
    def is_served(self) -> bool:
        """Whether it is served while it is a context."""
        return self.endpoint is not None

    @property
    def port(self) -> int:
        """Where it is served; -1 for nowhere."""
        return self.endpoint.port if self.endpoint else -1

    def __enter__(self) -> Telemetry:
        if self.endpoint:
            self.endpoint.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.ended_by(error)
        if self.endpoint:
            if isinstance(error, Exception | None) and not waiting.is_ending():
                self.endpoint.wait_for_scrape(self.wait_seconds)
            self.endpoint.close()


class _Collected(Collector):
    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterator[Family]:
        self._telemetry.ask()
        return self._telemetry.families()

    def describe(self) -> list[Family]:
        return []  # else the registry collects once to learn the names


def printable(value: Any) -> str:
    """A label's value that every scraper can read: valid UTF-8, without control characters, not endless.

    Quotes and line ends stay: they are escaped when it is written.
    """
    text = str(value)[:_MOST_CHARACTERS].encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
