"""How far the gain of each genre might be from what these documents show: the draws behind the intervals.

Documents are drawn again within their genre (common/bootstrap.py), and those of one group (one author or
work) are drawn together: a model that has learned an author gains on all of his poems, and an interval over
documents would count these as independent. A genre of few groups does not know its own
spread: of one document it would be zero, and one lucky poem would be beyond doubt. Such a genre borrows the
residuals of all groups where these spread wider than its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from yanmo.common.bootstrap import generator_for, resampled_sums, sums_of_groups

Floats = npt.NDArray[np.float64]
CHARACTERS, CHALLENGER, CHAMPION, GROUP = 0, 1, 2, 3
"""Columns of the paired scores of one genre; GROUP, the number of its group, may be left out where no
document belongs to one."""
FEW_DOCUMENTS = 10
"""Below so many documents, or groups of them, a genre's own spread is not trusted."""


def drawn_gains(scores: Mapping[str, Floats], draws: int, seed: int) -> dict[str, Floats] | None:
    """Genre -> its gain in each draw of documents, bits per character.

    Args:
        scores: genre -> (documents, 4): characters, challenger's bits, champion's bits, group.

    Returns:
        Arrays of `draws`; None where no genre has two groups, so that nobody knows any spread.
    """
    groups = {genre: grouped(values) for genre, values in scores.items()}
    pool = _residuals(groups)
    if not len(pool):
        return None
    return {genre: _drawn(values, pool, draws, seed, genre) for genre, values in groups.items()}


def grouped(values: Floats) -> Floats:
    """The paired scores of one genre, summed over groups: (groups, 3)."""
    return sums_of_groups(values[:, :GROUP], values[:, GROUP]) if values.shape[1] > GROUP else values


def _gain_of(values: Floats) -> float:
    """The champion's bits per character minus the challenger's."""
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
    """Return what each document gains beyond its genre, bits per character; unbiased by n / (n - 1)."""
    found = [np.zeros(0)]
    for values in scores.values():
        n, characters = len(values), values[:, CHARACTERS]
        if n > 1:
            own = values[:, CHAMPION] - values[:, CHALLENGER]
            of_text = np.divide(own, characters, out=np.full(n, np.nan), where=characters > 0)
            rest = of_text - _gain_of(values)
            found.append(rest[np.isfinite(rest)] * np.sqrt(n / (n - 1)))
    return np.concatenate(found)
