"""Everything that status found."""

from __future__ import annotations

from dataclasses import dataclass, field

from yanmo_pipelines.cluster.status.of_kfp import Run
from yanmo_pipelines.cluster.status.of_kubernetes import Job, Pod
from yanmo_pipelines.cluster.status.of_store import StoreState


@dataclass
class Status:
    """Each part is None where it could not be asked."""

    store: StoreState | None = None
    runs: list[Run] | None = None
    pods: list[Pod] | None = None
    jobs: list[Job] | None = None
    unasked: dict[str, str] = field(default_factory=dict)
    """store, kfp or kubernetes -> why it could not be asked."""
    codes: list[int] = field(default_factory=list)
    """Exit codes of these."""
