"""How the tiny stages are declared: as Yanmo's own, but in this package."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.stage.declaration import Stage


@dataclass(frozen=True, kw_only=True)
class TinyStage(Stage):
    @property
    def module(self) -> str:
        return f"tiny_stages.{self.name}"
