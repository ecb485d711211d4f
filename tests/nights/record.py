"""What happened in each night, in one file, so that a later sitting goes on where one ended."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(kw_only=True)
class Outcome:
    """What one night came to."""

    number: int
    sitting: int
    """From 1 on: nights that one command ran."""
    began_at: str = ""
    """UTC."""
    data: str = ""
    fault: str = ""
    stage: str = ""
    """In which the fault came."""
    clock: int = 0
    """Seconds that the clock was off, where that was the fault."""
    met: str = ""
    """Where the fault did not come as planned: too late, or left out and why."""
    seconds: float = 0.0
    runs: int = 0
    """Runs until there was a verdict: 1 where nothing had to be started again."""
    verdict: str = ""
    """Promote's own outcome; `nothing new`; empty where the night was lost."""
    champion: str = ""
    """First digits of the champion's content digest after the night."""
    fresh_bits: float | None = None
    """Bits per character of this champion on texts that the store never had."""
    added_bytes: int = 0
    predicted_bytes: int = 0
    findings: list[str] = field(default_factory=list)
    """What must not be, and is."""


@dataclass(kw_only=True)
class Record:
    """All nights so far."""

    path: Path
    seed: int
    road: str
    store: str
    channel: str
    machine: str = ""
    commits: list[str] = field(default_factory=list)
    """The commit of each sitting."""
    first_cache: str = ""
    """Key of the token cache of the first night."""
    seeds_bits: list[float] = field(default_factory=list)
    """Bits per character on the fresh texts, of the first night's model with other seeds."""
    measures: dict[str, float] = field(default_factory=dict)
    """What the prediction of growth rests on (growth.py)."""
    starts: list[int] = field(default_factory=lambda: [1])
    """Nights that began with an empty store: the first one, and each after which the store was gone."""
    pinned: str = ""
    """Content digest of the evaluation set."""
    notes: list[str] = field(default_factory=list)
    """What a later sitting could not take over."""
    nights: list[Outcome] = field(default_factory=list)

    def save(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        value = {name: of for name, of in asdict(self).items() if name != "path"}
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self.path)

    @property
    def findings(self) -> list[str]:
        return [f"night {night.number}: {finding}" for night in self.nights for finding in night.findings]


def read_record(path: Path) -> Record:
    """The record in a file.

    Raises:
        FileNotFoundError: there is none yet.
    """
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    nights = [Outcome(**night) for night in value.pop("nights")]
    return Record(path=path, nights=nights, **value)
