"""Work that stopped before its output was whole: what is said of it, and what is passed on in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from yanmo.common.errors import DataError
from yanmo.store.record import Record
from yanmo.store.schema import utc_now


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Why a stage's work stopped; what it made is kept below `runs/`, and the same command goes on there."""

    where: str
    """How far it had come: `step 120 of 450`."""
    why: str
    """What ended it: `--max-seconds 60`."""
    is_planned: bool = True
    """Whether its own hours were over. Somebody else (a drained node, a deleted pod) may have stopped it: a
    Job must not count that as success."""

    def __post_init__(self) -> None:
        if not (self.where and self.why):
            raise ValueError("a pause says where it is, and why")


@dataclass(frozen=True, kw_only=True)
class PausedOutput:
    """What is passed on in the place of a reference: no output was committed, no pointer moved."""

    status: Literal["paused"] = "paused"
    stage: str
    key: str
    where: str
    why: str
    at: str
    """UTC, ISO 8601."""

    @classmethod
    def of(cls, stage: str, key: str, pause: Pause) -> PausedOutput:
        """That `stage` paused now while it made `key`."""
        return cls(stage=stage, key=key, where=pause.where, why=pause.why, at=utc_now())

    def __str__(self) -> str:
        return f"{self.stage}/{self.key[:12]} is paused at {self.where} ({self.why})"

    def to_json(self) -> str:
        return _PAUSED.to_json(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> PausedOutput | None:
        """Return the pause that `text` records; None where it is something else."""
        try:
            return _PAUSED.parse(text, "a pause")
        except DataError:
            return None


_PAUSED = Record("yanmo.pause/1", PausedOutput)
