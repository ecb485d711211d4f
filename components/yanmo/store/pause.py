"""Work that stopped before its output was whole: what is said of it, and what is passed on in its place."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from yanmo.store.schema import MAX_REFERENCE_BYTES, load, utc_now

PAUSE_SCHEMA = "yanmo.pause/1"
_FIELDS = ("stage", "key", "where", "why", "at")


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
        return json.dumps({"schema": PAUSE_SCHEMA, "status": "paused", **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> PausedOutput | None:
        """Return the pause that `text` records; None where it is something else."""
        try:
            values = load(text) if len(text) <= MAX_REFERENCE_BYTES else None
        except ValueError:
            return None
        if not isinstance(values, dict) or values.get("schema") != PAUSE_SCHEMA:
            return None
        return cls(**{name: str(values.get(name, "?"))[:500] for name in _FIELDS})
