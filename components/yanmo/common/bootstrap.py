"""Bootstrap over documents: how sure a ratio of sums is, when the documents might have been others.

Documents are drawn with replacement within their genre, because the figure of interest is a mean over
genres, each bits / characters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_CELLS = 1_000_000
"""Documents drawn at a time: bounds the memory at about 16 MB."""


def generator_for(seed: int, name: str) -> np.random.Generator:
    """A generator of its own for `name`, so that one genre's draws do not move another's."""
    salt = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return np.random.default_rng([seed, salt])


def resampled_sums(values: Floats, draws: int, generator: np.random.Generator) -> Floats:
    """Sums over as many documents as there are, drawn with replacement.

    Args:
        values: shape (documents, measures), at least one document.
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
    """The percentile interval that holds the share `level` of `values`."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
