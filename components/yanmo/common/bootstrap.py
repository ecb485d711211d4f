"""Bootstrap over documents: how sure a ratio of sums is, when the documents might have been others.

Documents are drawn with replacement within their genre, because the metric of interest is a mean over
genres, each bits / characters. Where several hang together (one author, one work) they are drawn together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_CELLS = 1_000_000
"""Documents drawn at a time: bounds the memory at about 16 MB."""


def generator_for(seed: int, name: str) -> np.random.Generator:
    """Return a generator of its own for `name`, so that one genre's draws do not move another's."""
    salt = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return np.random.default_rng([seed, salt])


def sums_of_groups(values: Floats, group: npt.NDArray[Any]) -> Floats:
    """Sums over each group, in the order of their first rows: what is drawn where rows hang together.

    Rows that all stand alone stay as they are, and so do the draws from them.

    Args:
        values: shape (documents, measures).
        group: of each document, a name or a number; a document alone has one of its own.
    """
    _, first, name = np.unique(group, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first))[name]
    return np.stack([np.bincount(number, column) for column in values.T], axis=1)


def resampled_sums(values: Floats, draws: int, generator: np.random.Generator) -> Floats:
    """Sums over as many documents as there are, drawn with replacement.

    Args:
        values: shape (documents or groups of them, measures), at least one.
        draws: how many times.

    Returns:
        float64 of shape (draws, measures).
    """
    n, columns = len(values), np.ascontiguousarray(values.T)
    result = np.empty((draws, len(columns)))
    step = max(1, _CELLS // n)
    for start in range(0, draws, step):
        chosen = generator.integers(n, size=(min(step, draws - start), n), dtype=np.int32)
        for i, column in enumerate(columns):
            result[start : start + step, i] = column[chosen].sum(axis=1)
    return result


def interval(values: Sequence[float] | Floats, level: float = 0.95) -> tuple[float, float]:
    """Return the percentile interval that holds the share `level` of `values`."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
