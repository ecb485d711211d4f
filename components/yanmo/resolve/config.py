"""Options of the resolve task."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import StageOptions
from yanmo.stage.declaration import Stage


@dataclass(frozen=True, kw_only=True)
class ResolveOptions(StageOptions):
    """Pin what the channel's pointers name now, so that no later task of the run depends on the time."""


STAGE = Stage(
    name="resolve",
    image="data",
    revision=1,
    config=ResolveOptions,
    outputs={"champion": "Model", "evaluation_set": "Dataset"},
)
