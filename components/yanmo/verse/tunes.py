"""The line lengths of 词: what the training text usually writes to a tune.

No register of tunes (词谱) with a free licence was found, so the usual pattern is learned: a pattern of line
lengths that at least two training texts of a tune share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from yanmo.verse.poems import Poem, read_poem

_LEAST = 2
"""Texts of a tune that make their pattern a usual one."""
Shape = tuple[int, ...]


def tune_of(title: str) -> str:
    """The tune that a title names: `临江仙·梦后楼台高锁` and `雁后归・临江仙` both give 临江仙.

    The corpus writes tune·first-line with U+00B7 and alias・tune with U+30FB.
    """
    return title.split("\u00b7")[0].split("\u30fb")[-1].strip()


@dataclass(frozen=True)
class Tunes:
    """The usual patterns."""

    by_tune: dict[str, frozenset[Shape]]
    """Tunes with a usual pattern."""
    all: frozenset[Shape]

    @classmethod
    def learn(cls, texts: Iterable[tuple[str, str]]) -> Tunes:
        """Learn from (title, text) of training documents."""
        counts: dict[str, Counter[Shape]] = defaultdict(Counter)
        for title, text in texts:
            counts[tune_of(title)][read_poem(text).shape] += 1
        usual = {t: frozenset(s for s, n in found.items() if n >= _LEAST) for t, found in counts.items()}
        by_tune = {tune: shapes for tune, shapes in sorted(usual.items()) if shapes}
        return cls(by_tune, frozenset().union(*by_tune.values()))

    def own(self, poem: Poem, title: str | None) -> tuple[int, int]:
        """Return whether the poem has a usual pattern of its title's tune; (0, 0) where none is known."""
        shapes = self.by_tune.get(tune_of(title)) if title else None
        return (int(poem.whole and poem.shape in shapes), 1) if shapes else (0, 0)

    def any(self, poem: Poem) -> tuple[int, int]:
        """Return whether it has a usual pattern of some tune."""
        return int(poem.whole and poem.shape in self.all), 1
