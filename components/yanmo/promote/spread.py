"""How far the gain of each genre might be from what these documents say: the draws behind the intervals.

Documents are drawn again within their genre (common/bootstrap.py). A genre of few documents does not know its
own spread: of one document it would be zero, and one lucky poem would be beyond doubt. Such a genre borrows
the residuals of all documents where these spread wider than its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from yanmo.common.bootstrap import generator_for, resampled_sums

Floats = npt.NDArray[np.float64]
CHARACTERS, CHALLENGER, CHAMPION = 0, 1, 2
"""Columns of the paired scores of one genre."""
FEW_DOCUMENTS = 10
"""Below this a genre's own spread is not trusted."""


def drawn_gains(scores: Mapping[str, Floats], draws: int, seed: int) -> dict[str, Floats] | None:
    """Genre -> its gain in each draw of documents, bits per character.

    Args:
        scores: genre -> (documents, 3): characters, challenger's bits, champion's bits.

    Returns:
        Arrays of `draws`; None where no genre has two documents, so that nobody knows any spread.
    """
    pool = _residuals(scores)
    if not len(pool):
        return None
    return {genre: _drawn(values, pool, draws, seed, genre) for genre, values in scores.items()}


def _gain_of(values: Floats) -> float:
    """The champion's bits per character less the challenger's."""
    characters, challenger, champion = values.sum(axis=0)
    return float((champion - challenger) / characters)


def _drawn(values: Floats, pool: Floats, draws: int, seed: int, genre: str) -> Floats:
    sums = resampled_sums(values, draws, generator_for(seed, genre))
    own = np.asarray((sums[:, CHAMPION] - sums[:, CHALLENGER]) / sums[:, CHARACTERS])
    if len(values) >= FEW_DOCUMENTS:
        return own
    characters, generator = values[:, CHARACTERS], generator_for(seed, f"{genre} borrows")
    lent = pool[generator.integers(len(pool), size=(draws, len(values)))]
    borrowed = _gain_of(values) + (lent * characters).sum(axis=1) / characters.sum()
    return own if own.std() > borrowed.std() else borrowed


def _residuals(scores: Mapping[str, Floats]) -> Floats:
    """What each document gains beyond its genre, bits per character; unbiased by n / (n - 1)."""
    found = [np.zeros(0)]
    for values in scores.values():
        n, characters = len(values), values[:, CHARACTERS]
        if n > 1:
            own = values[:, CHAMPION] - values[:, CHALLENGER]
            of_text = np.divide(own, characters, out=np.full(n, np.nan), where=characters > 0)
            rest = of_text - _gain_of(values)
            found.append(rest[np.isfinite(rest)] * np.sqrt(n / (n - 1)))
    return np.concatenate(found)
