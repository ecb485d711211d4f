"""What a stage declares about itself, metrics included; read by its command line and the pipeline compiler.

A stage lists its own metrics (`Stage.metrics`); what every process of a stage has, and what is said of a GPU,
is in shared_metrics.py. Nothing can be served that is not declared (exporter.py), so the reference page
(docs/reference/metrics.md), rules and dashboards can be made from these lists and are complete.

Labels are bounded: a label has the values that are listed, or at most so many; what comes after them is
counted as OTHER. A metric never has a label of a run, a step, a file or a document: the run is a label of
`yanmo_run_info` alone, and a query joins it by pod.

Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["gauge", "counter"]

OTHER = "other"
"""Value of a label for all that come after its last allowed one."""
UNITS = ("seconds", "bytes", "joules", "watts", "celsius", "hertz", "ratio", "info")
"""How names end, before _total: base units (prometheus.io, "Metric and label naming")."""
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")


@dataclass(frozen=True, kw_only=True)
class Label:
    """One label of a metric."""

    name: str
    values: tuple[str, ...] = ()
    """All that it can have; () where the data say."""
    most: int = 64
    """How many values it can have, where they are not listed, besides OTHER."""
    about: str = ""
    """Whose values it has, where they are not listed."""
    zh: str = ""

    def __post_init__(self) -> None:
        assert _NAME.match(self.name), self.name
        assert self.values or (self.about and self.zh and self.most > 0), self.name


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric: `yanmo_<room>_<name>`, and `_total` behind it where it is a counter."""

    name: str
    help: str
    """One line of ASCII: what is counted or measured."""
    zh: str
    """The same in Chinese, for the reference page."""
    kind: Kind = "gauge"
    room: str = ""
    """What follows `yanmo_`; "" for the stage's name."""
    labels: tuple[Label, ...] = ()
    lasts: bool = False
    """Whether it survives another try of the stage in the same process (`Telemetry.begin_again`)."""
    alert: str = ""
    """The alert that is made of it; "" for none."""
    final: bool = False
    """Whether it is a fact of a run that has ended, which a Pushgateway may show until the next one ends.
    Pushed, it never changes: rules and dashboards join it by its pod, or ask for its `stage`, a label that
    only what is pushed has."""

    def __post_init__(self) -> None:
        assert _NAME.match(self.name) and self.help and self.zh, self.name
        assert self.help.isascii() and "\n" not in self.help + self.zh, self.name
        assert not self.name.endswith(("_total", "_count", "_sum", "_bucket")), self.name
        runs = {"run_id", "run", "step", "file", "document"} & {label.name for label in self.labels}
        assert not runs or (self.room, self.name) == ("run", "info"), f"{self.name}: series without end"

    def family(self, stage: str) -> str:
        """Its name on /metrics."""
        return f"yanmo_{self.room or stage}_{self.name}" + ("_total" if self.kind == "counter" else "")

    @property
    def unit(self) -> str:
        """The unit at the end of its name; "" for a bare number."""
        if "_per_second" in self.name:
            return f"{self.name.partition('_per_second')[0].rpartition('_')[2]}/s"
        return next((unit for unit in UNITS if self.name.endswith((f"_{unit}", unit))), "")


GENRE = Label(name="genre", about="genre of the data", zh="数据的体裁")
RANK = Label(
    name="rank",
    about="rank among those of all nodes, from 0",
    zh="所有节点的进程中的编号，从 0 开始",
    most=1024,
)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One containerized step: `python -m yanmo.<name>` in the image called `image`."""

    name: str
    """The verb: folder, command, KFP task, CronJob, metric prefix."""
    image: str
    """Which image runs it: `data` or `train` (images/README.md)."""
    revision: int
    """Raised by hand when the same options and inputs give other bytes; part of the key."""
    config: type
    """The dataclass of options, derived from `StageOptions`."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Output name -> KFP artifact type ("Dataset", "Model", "HTML", ...), as a pipeline's graph shows them.
    The first is the main output: the stage's own key. The others are references in its manifest, or record
    files (HTML). A part that is not among them travels inside the first."""
    parameters: tuple[str, ...] = ("status",)
    """Names of small text results (`promoted`), for who looks at a run, and for tasks that follow; `status`
    is made, found or paused."""
    metrics: tuple[Metric, ...] = ()
    """What it serves on /metrics, besides what every stage does."""
    objects: dict[str, type] = field(default_factory=dict)
    """Name of a result that is JSON -> dict or list."""
    runs: str = ""
    """What `python -m` runs; "" for yanmo.NAME."""

    @property
    def module(self) -> str:
        """What `python -m` runs."""
        return self.runs or f"yanmo.{self.name}"

    @property
    def declared_in(self) -> str:
        """The module whose STAGE this is."""
        return self.config.__module__

    @property
    def main_output(self) -> str:
        """The name of the output that carries the stage's own key."""
        return next(iter(self.outputs))
