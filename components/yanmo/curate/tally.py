"""Counts of what happened to documents, by reason and genre, with examples; they add up over batches.

The examples are those with the smallest ids, so they do not depend on the order of files or on workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from yanmo.formats.records import GENRES

EXAMPLES, OF_GENRE = 10, 3
"""Examples of a name, and of each genre in any case."""


@dataclass
class Tally:
    """name -> genre -> [documents, characters], and name -> examples."""

    counts: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

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
