"""What happened to the records of some batches, of a file, or of all files: counts, with examples.

Counts add up over batches. Examples are those with the smallest ids, so they do not depend on the order of
files or on workers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.curate.sources.parsing import Malformed, RawDocument
from yanmo.curate.text.cleaning import Cleaned
from yanmo.curate.text.filters import Verdicts, other_script
from yanmo.curate.text.normalize import Normalized
from yanmo.formats.records import GENRES

SHOWN_MALFORMED = 20
"""Malformed lines that are listed in the report; all are counted."""
_SHOWN = frozenset(("cleaned_mojibake", "cleaned_boilerplate"))
"""Repairs shown as examples in the report; personal data is not shown."""


EXAMPLES, OF_GENRE = 10, 3
"""Examples of a name, and of each genre in any case."""


@dataclass
class Tally:
    """name -> genre -> [documents, characters], and name -> examples."""

    counts: dict[str, dict[str, list[int]]] = dataclasses.field(default_factory=dict)
    examples: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)

    def add(self, name: str, genre: str, documents: int, characters: int) -> None:
        """Count documents of `genre` under `name`."""
        cell = self.counts.setdefault(name, {}).setdefault(genre, [0, 0])
        cell[0] += documents
        cell[1] += characters

    def show(self, name: str, examples: Iterable[dict[str, Any]]) -> None:
        """Keep the examples of `name` with the smallest `id`, of all and of each genre."""
        pool = sorted([*self.examples.get(name, []), *examples], key=lambda e: (e["id"], repr(e)))
        of_genre, kept = Counter[str](), []
        for number, example in enumerate(pool):
            of_genre[example["genre"]] += 1
            if number < EXAMPLES or of_genre[example["genre"]] <= OF_GENRE:
                kept.append(example)
        self.examples[name] = kept

    def merge(self, other: Tally) -> None:
        """Add the counts and examples of `other`."""
        for name, genres in other.counts.items():
            for genre, (documents, characters) in genres.items():
                self.add(name, genre, documents, characters)
        for name, examples in other.examples.items():
            self.show(name, examples)

    def documents(self, name: str, genre: str | None = None) -> int:
        """Return documents counted under `name`, of one genre or all."""
        return self._sum(name, genre, 0)

    def characters(self, name: str, genre: str | None = None) -> int:
        """Characters counted under `name`, of one genre or all."""
        return self._sum(name, genre, 1)

    def _sum(self, name: str, genre: str | None, index: int) -> int:
        genres = self.counts.get(name, {})
        return sum(c[index] for g, c in genres.items() if genre in (None, g))

    def genres(self, *names: str) -> list[str]:
        """Return the genres counted under any of `names`, in the order of tables."""
        return sort_genres({g for name in names for g in self.counts.get(name, {})})

    def to_json(self) -> dict[str, Any]:
        """Return the tally as JSON values, for `from_json`."""
        counts = {
            name: {
                genre: {"documents": cell[0], "characters": cell[1]} for genre, cell in sorted(genres.items())
            }
            for name, genres in sorted(self.counts.items())
        }
        return {"counts": counts, "examples": dict(sorted(self.examples.items()))}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Tally:
        result = cls(examples=dict(value["examples"]))
        for name, genres in value["counts"].items():
            for genre, cell in genres.items():
                result.add(name, genre, cell["documents"], cell["characters"])
        return result


def sort_genres(genres: Iterable[str]) -> list[str]:
    """Return the bundled corpus' genres first, others after them by name."""
    order = {genre: i for i, genre in enumerate(GENRES)}
    return sorted(genres, key=lambda g: (order.get(g, len(order)), g))


@dataclass
class MapReport:
    """What happened to the records of a file, or of all files."""

    lines: int = 0
    """Records read, malformed ones included."""
    malformed: int = 0
    bytes: int = 0
    """Of all records."""
    unread: int = 0
    """Of these, bytes that are no record: a line that is no JSON or too long, the rest of a file."""
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
        self.bytes += other.bytes
        self.unread += other.unread
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
            "bytes": self.bytes,
            "unread": self.unread,
            "first_malformed": [(m.file, m.line, m.why) for m in self.first_malformed],
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
            bytes=value["bytes"],
            unread=value["unread"],
            first_malformed=first,
            tally=Tally.from_json(value),
            files=Counter(value["files"]),
            plain=value["plain"],
            chats=Counter(value["chats"]),
            empty=value["empty"],
        )


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Documents, and what became of each; all in one order."""

    documents: list[RawDocument]
    ids: list[str]
    cleaned: list[Cleaned]
    normalized: Normalized
    verdicts: Verdicts

    @cached_property
    def _happened(self) -> dict[str, npt.NDArray[np.int64]]:
        """Name of the tally -> indexes of its documents."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for i, document in enumerate(self.documents):
            for change in self.cleaned[i].changes:
                found[f"cleaned_{change}"].append(i)
            if document.encoding != "utf-8":
                found[f"cleaned_line_in_{document.encoding}"].append(i)
            if self.verdicts.reasons[i]:
                found[self.verdicts.reasons[i]].append(i)
        steps = {f"cleaned_{step}": np.flatnonzero(c) for step, c in self.normalized.changed.items()}
        others = {name: np.array(which, dtype=np.int64) for name, which in found.items()}
        return {"read": np.arange(len(self.documents)), **steps, **others}

    @cached_property
    def changes(self) -> list[str]:
        """For each document the steps that changed it, with commas."""
        found: list[list[str]] = [[] for _ in self.documents]
        for name in sorted(self._happened):
            if name.startswith("cleaned_"):
                for i in self._happened[name].tolist():
                    found[i].append(name.removeprefix("cleaned_"))
        return [",".join(names) for names in found]

    def count(self, tally: Tally) -> None:
        """Count what was read, changed and dropped, by genre, with examples."""
        names, genre = np.unique(np.array([d.genre for d in self.documents], object), return_inverse=True)
        for what, which in self._happened.items():
            numbers = np.bincount(genre[which], minlength=len(names))
            sizes = np.bincount(genre[which], weights=self.normalized.characters[which], minlength=len(names))
            for name, number, size in zip(names.tolist(), numbers.tolist(), sizes.tolist(), strict=True):
                if number:
                    tally.add(what, name, number, int(size))
            if what in _SHOWN:
                tally.show(what, [self.example(i) for i in which.tolist()])
        for reason in self._happened.keys() & set(self.verdicts.reasons):
            tally.show(reason, [self.example(i, measured=True) for i in self._happened[reason].tolist()])

    def example(self, i: int, *, measured: bool = False) -> dict[str, Any]:
        """Return document `i` as the report shows it.

        Args:
            measured: whether with what the filter measured that dropped it.
        """
        document, text = self.documents[i], self.normalized.texts[i]
        example: dict[str, Any] = {
            "id": self.ids[i],
            "genre": document.genre,
            "title": document.title,
            "source": document.source,
            "path": f"{document.path}:{document.line}",
            "text": text[:80],
        }
        if measured:
            note = other_script(text) if self.verdicts.reasons[i] in ("not_han", "too_short") else ""
            example |= {"value": round(self.verdicts.values[i], 4), **({"note": note} if note else {})}
        return example
