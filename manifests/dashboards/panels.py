"""What a dashboard is made of, before Grafana's form of it (write.py): rows of panels with their queries.

A query names its metrics as they are declared (`<stage>/metrics.py`), and finds those of a run by way of
`yanmo_run_info`, which alone has the run's id. `on (job, instance)` joins the figures of one pod, in
Kubernetes and elsewhere, as in the alerts.

Standard library only: who checks or draws the panels needs no SDK.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["stat", "name", "bars", "lines", "stack", "states", "table"]
"""stat: the last value, large; name: the name of the series in its place; bars: one for
each last value. lines, stack: over time. states:
which of STATES, over time. table: the labels of the last values, a line each."""

GPU = "needs a GPU: its driver is asked (NVML)"
"""Why a panel has nothing to show of a training on a laptop."""

STATES = ("starting", "working", "handing over", "done", "paused", "failed")
"""What a panel of the kind `states` calls the values 1, 2, ..."""
STATE_COLORS = ("blue", "green", "light-green", "text", "yellow", "red")

RUN_INFO = 'yanmo_run_info{namespace=~"$namespace",channel=~"$channel",run_id=~"$run"}'
WITHIN = "[$__rate_interval]"


def of_run(expression: str, *labels: str) -> str:
    """The expression for the runs that are chosen, with the run's id and these more of its labels."""
    taken = ", ".join(("run_id", *labels))
    return f"{expression} * on (job, instance) group_left ({taken}) {RUN_INFO}"


def joined(said: str) -> str:
    """What pods said not long ago, with the run's id, though they may be gone.

    `pod` keeps two pods apart that had one address after each other.
    """
    of_pod = f"max by (job, instance, pod, run_id) (last_over_time({RUN_INFO}{WITHIN}))"
    return f"{said} * on (job, instance, pod) group_left (run_id) {of_pod}"


def last(metric: str) -> str:
    """What a metric said last, of the runs that are chosen, also where a stage said it once at its end.

    Between two points of a long time such a figure has come and gone.
    """
    return joined(f"last_over_time({metric}{WITHIN})")


def rate(counter: str, *labels: str) -> str:
    """A counter's increase per second, of the runs that are chosen."""
    return of_run(f"rate({counter}{WITHIN})", *labels)


@dataclass(frozen=True)
class Query:
    """One query of a panel."""

    expression: str
    legend: str
    """How each of its series is called: `{{label}}` is the label's value."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel."""

    title: str
    kind: Kind = "lines"
    queries: tuple[Query, ...]
    about: str = ""
    """What a reader must know to read it."""
    unit: str = "short"
    """As Grafana calls it."""
    width: int = 8
    """Of 24 columns."""
    height: int = 7
    """Of Grafana's units, 30 pixels each."""
    least: float | None = 0.0
    """Where the axis begins; None: where the data do."""
    most: float | None = None
    limits: tuple[tuple[float, str], ...] = ()
    """From which value on it has which color."""
    needs: str = ""
    """What it needs to show anything, where a training on a laptop is not enough: GPU or another
    reason."""

    @property
    def description(self) -> str:
        """What Grafana says of it."""
        needs = f"{self.needs[0].upper()}{self.needs[1:]}." if self.needs else ""
        return " ".join(text for text in (self.about, needs) if text)


def one(title: str, expression: str, legend: str = "{{run_id}}", **more: object) -> Panel:
    """A panel with one query."""
    return Panel(title=title, queries=(Query(expression, legend),), **more)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]
    is_open: bool = True


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A choice at the top of a dashboard."""

    name: str
    label: str
    about: str
    query: str
    """What lists its values."""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A whole dashboard."""

    name: str
    """Of its file, and the end of its uid."""
    title: str
    about: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    since: str
    """How far back it looks at first: `now-6h`."""
    refresh: str

    def panels(self) -> list[Panel]:
        """All of them, in order."""
        return [panel for row in self.rows for panel in row.panels]


NAMESPACE = Variable(
    name="namespace",
    label="Namespace",
    about="Of the pods; empty outside Kubernetes.",
    query="label_values(yanmo_run_info, namespace)",
)
CHANNEL = Variable(
    name="channel",
    label="Channel",
    about="A series of runs.",
    query='label_values(yanmo_run_info{namespace=~"$namespace"}, channel)',
)
RUN = Variable(
    name="run",
    label="Run",
    about="Id of a pipeline run; those of the time that is shown.",
    query='label_values(yanmo_run_info{namespace=~"$namespace",channel=~"$channel"}, run_id)',
)
RANK = Variable(
    name="rank",
    label="Rank",
    about="Process of a training, of the panels that show each by itself.",
    query='label_values(yanmo_train_heartbeat_age_seconds{namespace=~"$namespace"}, rank)',
)
ALERTS = 'ALERTS{alertname=~"Yanmo.+",alertstate="firing",namespace=~"$namespace"}'
ALERTS_NOW = Panel(
    title="Alerts",
    queries=(Query(f"count({ALERTS}) or vector(0)", "firing"),),
    kind="stat",
    width=4,
    height=4,
    limits=((0, "green"), (1, "red")),
    about="Of the whole namespace.",
)
