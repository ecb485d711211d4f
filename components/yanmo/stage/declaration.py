"""What a stage declares about itself; read by its command line and by the pipeline compiler."""

from __future__ import annotations

from dataclasses import dataclass, field

from yanmo.stage.metric import Metric


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
