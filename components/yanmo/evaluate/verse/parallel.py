"""对仗: how parallel a couplet is, by which characters face each other in the training text.

In middle couplets of training 律诗 characters at one place of both lines are counted as a pair. A couplet's
score is the mean over its places of

    log((pairs(a, b) + k) / (expected(a, b) + k)),   k = 0.5, expected = n(a) n(b) / all

with 0 for characters seen fewer than ten times. A couplet counts as parallel when its score is above that of
95 % of couplets put together at random. That is a proxy: it knows that 山 faces 水, and nothing of
grammar. Measured on 331 held-out 律诗: 75 % of middle couplets, 17 % of first and last ones, which need not
be parallel, 5 % by chance. Vectors of such counts (by SVD, or by their neighbours) did worse: 29 to 31 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from yanmo.verse.poems import Poem

_SMOOTHING = 0.5
_LEAST = 10
_CHANCE = 0.05
Couplet = tuple[str, str]


def middle_couplets(poem: Poem) -> list[Couplet]:
    """Lines 3 and 4, 5 and 6 of a 律诗; nothing of other poems."""
    if poem.form not in ("五律", "七律"):
        return []
    return [(poem.lines[2], poem.lines[3]), (poem.lines[4], poem.lines[5])]


@dataclass(frozen=True)
class Pairs:
    """Counted pairs, and the score that few random couplets reach."""

    pairs: dict[Couplet, int]
    """Both orders of each pair."""
    single: dict[str, int]
    total: int
    threshold: float

    @classmethod
    def learn(cls, couplets: Sequence[Couplet], generator: np.random.Generator) -> Pairs:
        """Count pairs.

        Args:
            couplets: couplets of training poems.
            generator: draws the couplets put together at random, whose scores give the threshold.
        """
        seen = Counter(c for first, second in couplets for c in first + second)
        known = {c for c, n in seen.items() if n >= _LEAST}
        pairs = Counter(p for couplet in couplets for p in _places(couplet) if known.issuperset(p))
        pairs.update({(b, a): n for (a, b), n in list(pairs.items())})
        single: Counter[str] = Counter()
        for (a, _), n in pairs.items():
            single[a] += n
        counted = cls(dict(pairs), dict(single), sum(single.values()), 0.0)
        scores = [counted.score(couplet) for couplet in mismatched(couplets, generator)]
        limit = float(np.quantile(scores, 1 - _CHANCE)) if scores else 0.0
        return cls(counted.pairs, counted.single, counted.total, limit)

    def score(self, couplet: Couplet) -> float:
        """Mean log ratio over the couplet's places."""
        found = [self._of(a, b) for a, b in _places(couplet)]
        return sum(found) / len(found)

    def parallel(self, poem: Poem) -> tuple[int, int]:
        """(parallel, all) middle couplets of a poem."""
        scores = [self.score(couplet) for couplet in middle_couplets(poem)] if self.total else []
        return sum(score > self.threshold for score in scores), len(scores)

    def _of(self, a: str, b: str) -> float:
        if a not in self.single or b not in self.single:
            return 0.0
        expected = self.single[a] * self.single[b] / self.total
        return math.log((self.pairs.get((a, b), 0) + _SMOOTHING) / (expected + _SMOOTHING))


def _places(couplet: Couplet) -> Iterable[Couplet]:
    return zip(*couplet, strict=True)


def mismatched(couplets: Sequence[Couplet], generator: np.random.Generator) -> list[Couplet]:
    """Couplets whose second lines come from others of the same width."""
    result: list[Couplet] = []
    for width in sorted({len(first) for first, _ in couplets}):
        same = [c for c in couplets if len(c[0]) == width]
        order = generator.permutation(len(same))
        result += [(first, same[i][1]) for (first, _), i in zip(same, order, strict=True)]
    return result
