"""Random token replacement: online augmentation, different each time a text is read.

A share of the input tokens is replaced by tokens drawn from the training text; the targets stay the same, so
that the model learns to predict from a slightly damaged context. This is reported to lower the best
validation loss where a small text is repeated many times (arXiv 2606.16246: 150 M parameters, 75 M tokens,
100 epochs; replacing 5 % was the best single method); docs/how-to/prepare-text.md has what it did here. It
takes no memory and no disk, and the damage differs from epoch to epoch. Alternative not taken: uniform
draws from the vocabulary, most of which is rare.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from yanmo.formats.packing import keyed_random
from yanmo.formats.token_cache import DocumentIndex, TokenCache

_PURPOSE = 3
"""Purpose number for `keyed_random`; packing has 0 to 2."""


class TokenNoise:
    """Replaces tokens of packed rows: a pure function of (seed, sample number), so that a resume is exact."""

    def __init__(self, cache: TokenCache, index: DocumentIndex, *, share: float, seed: int) -> None:
        """Args:
        index: the training documents; replacements are drawn from their tokens, so by frequency.
        share: share of the input tokens to replace, 0 to 1.
        """
        self._cache, self._index, self._share, self._seed = cache, index, share, seed
        self._ends = np.cumsum(index.length.astype(np.int64) - 2)  # without <|bos|> and <|eos|>
        self._fixed = np.array([cache.bos, cache.eos, *cache.tag_ids])

    def apply(self, ids_T: NDArray[np.int64], segments_T: NDArray[np.int64], sample: int) -> None:
        """Replace tokens of one row in place; padding, `<|bos|>` and tags stay."""
        count = len(ids_T)
        drawn = keyed_random(2 * count, self._seed, sample, _PURPOSE)
        chosen = (drawn[:count] >> np.uint64(11)).astype(np.float64) * 2.0**-53 < self._share
        chosen &= (segments_T > 0) & ~np.isin(ids_T, self._fixed)
        if chosen.any() and self._ends[-1] > 0:
            ids_T[chosen] = self._tokens(drawn[count:][chosen] % np.uint64(self._ends[-1]))

    def _tokens(self, place: NDArray[Any]) -> NDArray[np.int64]:
        """Return the tokens of the training text at these positions, counted over all documents."""
        document = np.searchsorted(self._ends, place, side="right")
        inside = place.astype(np.int64) - self._ends[document] + self._index.length[document] - 1
        at = self._index.offset[document] + inside
        shards = self._index.shard[document]
        pairs = zip(shards.tolist(), at.tolist(), strict=True)
        return np.array([self._cache.tokens[shard][i] for shard, i in pairs], np.int64)
