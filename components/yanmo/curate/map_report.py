"""What happened to the records of a file, or of all files: counts, with examples."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any

from yanmo.curate.sources.parsing import Malformed
from yanmo.curate.tally import Tally

SHOWN_MALFORMED = 20
"""Malformed lines that are listed in the report; all are counted."""


@dataclass
class MapReport:
    """What happened to the records of a file, or of all files."""

    lines: int = 0
    """Records read, malformed ones included."""
    malformed: int = 0
    first_malformed: list[Malformed] = dataclasses.field(default_factory=list)
    tally: Tally = dataclasses.field(default_factory=Tally)
    """`read`, each filter's name, and `cleaned_*`."""
    files: Counter[str] = dataclasses.field(default_factory=Counter)
    """Encoding (or `parquet`) -> files."""
    plain: int = 0
    """Documents of genre PLAIN, as their files know no genres."""
    chats: Counter[str] = dataclasses.field(default_factory=Counter)
    """Layout (the fields that a chat was read from) -> chats."""
    empty: list[str] = dataclasses.field(default_factory=list)
    """Names of files without a record."""

    def merge(self, other: MapReport) -> None:
        self.lines += other.lines
        self.malformed += other.malformed
        self.first_malformed = [*self.first_malformed, *other.first_malformed][:SHOWN_MALFORMED]
        self.tally.merge(other.tally)
        self.files.update(other.files)
        self.plain += other.plain
        self.chats.update(other.chats)
        self.empty += other.empty

    def to_json(self) -> dict[str, Any]:
        return {
            "lines": self.lines,
            "malformed": self.malformed,
            "first_malformed": [dataclasses.astuple(m) for m in self.first_malformed],
            "files": dict(sorted(self.files.items())),
            "plain": self.plain,
            "chats": dict(sorted(self.chats.items())),
            "empty": self.empty,
            **self.tally.to_json(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> MapReport:
        first = [Malformed(*m) for m in value["first_malformed"]]
        return cls(
            lines=value["lines"],
            malformed=value["malformed"],
            first_malformed=first,
            tally=Tally.from_json(value),
            files=Counter(value["files"]),
            plain=value["plain"],
            chats=Counter(value["chats"]),
            empty=value["empty"],
        )
