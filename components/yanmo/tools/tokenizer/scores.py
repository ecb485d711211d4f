"""Bits per character of several tokenizers, how sure they are, and one sentence about them.

The documents are drawn again 2,000 times, the same ones for all tokenizers: the interval of a difference
is much narrower than the intervals of its two terms. It says what other documents would change, not what
another seed of the training would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from yanmo.common.bootstrap import generator_for, interval, resampled_sums

Floats = npt.NDArray[np.float64]
_DRAWS = 2000
_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Score:
    """One tokenizer's bits per character."""

    bits_per_character: float
    interval: tuple[float, float]
    behind: float
    """How many more than the best."""
    behind_interval: tuple[float, float]
    """95 %; (0, 0) for the best."""

    @property
    def is_clear(self) -> bool:
        """Whether it is worse than the best on almost any choice of documents."""
        return self.behind_interval[0] > 0


def scores(bits: Mapping[str, Floats], characters: Floats) -> dict[str, Score]:
    """The score of each tokenizer, the best first.

    Args:
        bits: name -> bits of each document.
        characters: of each document that are not white space.
    """
    names = list(bits)
    table = np.column_stack([characters, *bits.values()])
    sums = resampled_sums(table, _DRAWS, generator_for(_SEED, "tokenizers"))
    drawn = sums[:, 1:] / sums[:, :1]
    whole = table.sum(0)[1:] / characters.sum()
    best = int(whole.argmin())
    found = {
        names[i]: Score(
            bits_per_character=round(float(whole[i]), 4),
            interval=_rounded(interval(drawn[:, i])),
            behind=round(float(whole[i] - whole[best]), 4),
            behind_interval=_rounded(interval(drawn[:, i] - drawn[:, best])),
        )
        for i in np.argsort(whole, kind="stable").tolist()
    }
    return found


def _rounded(pair: tuple[float, float]) -> tuple[float, float]:
    return round(pair[0], 4), round(pair[1], 4)


def recommendation(found: Mapping[str, Score], characters_per_token: Mapping[str, float]) -> str:
    """One sentence: which to take, and how sure that is.

    Among those that the documents cannot tell apart, the one with the fewest tokens: it costs least.
    """
    names = list(found)
    best = names[0]
    equal = [name for name in names if not found[name].is_clear]
    bits = f"{found[best].bits_per_character:.3f} bits per character"
    if len(equal) == 1:
        second = found[names[1]]
        low, high = second.behind_interval
        return (
            f"Take {best}: {bits}, {second.behind:.3f} fewer than {names[1]}, the next (95 % interval of the "
            f"difference over documents {low:.3f} to {high:.3f}; one training each, so what another seed "
            "would change is not in it)."
        )
    take = max(equal, key=lambda name: characters_per_token[name])
    others = " and ".join(name for name in equal if name != best)
    return (
        f"{best} has the fewest, {bits}, but these documents cannot tell {others} apart from it (95 % "
        f"intervals of the differences include 0); take {take}, which makes the fewest tokens of them "
        f"({characters_per_token[take]:.3f} characters per token)."
    )
