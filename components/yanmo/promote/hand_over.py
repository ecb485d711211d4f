"""What `prepare` hands to the verdict and to the promotion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from yanmo.promote.config import PromoteConfig
from yanmo.promote.gate.nights import Night
from yanmo.stage.stage_run import StageRun
from yanmo.store.manifest import Reference


@dataclass
class Handed:
    """Filled in while the key is found."""

    nights: Sequence[Night] = ()
    """The gains of the nights before."""
    previous: Reference | None = None
    """The champion that the pointer named when the comparison began."""
    rolled_back: str = ""
    """Who took this model down, and why; empty where nobody did."""


PromoteRun = StageRun[PromoteConfig, Handed]
