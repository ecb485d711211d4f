"""What a process measures, held until it is scraped: `Measured`.

Only what is declared (metric.py) can be set, with its own labels and no more values of them than are
allowed.

A measurement that can grow old by itself (an age, a process's memory) is made when it is asked for: a
`source` is called before each answer. Where a source fails the rest is served without it.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from yanmo.stage.endpoint import Endpoint
from yanmo.stage.metric import OTHER, Label, Metric

log = logging.getLogger(__name__)
Figure = tuple[str, float, Mapping[str, str]]
"""Metric, value, labels."""
_MOST_CHARACTERS = 120
"""Longest value of a label that the data say."""


class Measured:
    """The values of declared metrics; `start` serves them."""

    def __init__(
        self, room: str, metrics: Iterable[Metric], *, port: int = -1, everywhere: bool = False
    ) -> None:
        """Args:
        room: what follows `yanmo_` in the name of a metric that names no room.
        metrics: all that can be set.
        port: TCP port to serve on; 0 a free one, -1 none.
        everywhere: on all addresses of this machine, and not on its loopback alone.
        """
        self.room = room
        self._metrics = {(each.room or room, each.name): each for each in metrics}
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._seen: dict[tuple[Metric, str], set[str]] = {}
        self._lock = threading.RLock()
        self._sources: list[tuple[Callable[[], None], bool]] = []
        self._told: set[str] = set()
        self.registry = CollectorRegistry()
        self.registry.register(_Collected(self))
        self.endpoint = Endpoint(self.registry, port, everywhere) if port >= 0 else None

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
        return self._metrics[room or self.room, name]

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


class _Collected(Collector):
    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Family]:
        self._measured.ask()
        return self._measured.families()

    def describe(self) -> list[Family]:
        return []  # else the registry collects once to learn the names


def printable(value: Any) -> str:
    """A label's value that every scraper can read: valid UTF-8, without control characters, not endless.

    Quotes and line ends stay: they are escaped when it is written.
    """
    text = str(value)[:_MOST_CHARACTERS].encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
