"""Which positions of the training rows compute the logits of frequent tokens alone (model/frequent_loss.py).

The draw depends on nothing but the seed, the sample's number and the position: ranks, micro batches and a
resume see the same one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from yanmo.formats.packing import keyed_random
from yanmo.formats.token_cache import DocumentIndex, TokenCache

NEAR, WHOLE, DRAWN = 0, 1, 2
"""A position computes the logits of frequent tokens alone; all of them; all, for others of its kind too."""
DRAWN_SHARE = 0.05
"""Share of the positions with frequent targets that compute all logits."""
_PURPOSE = 4
"""Purpose number for `keyed_random`; packing has 0 to 2, token noise 3."""
_COUNTED_TOKENS = 50_000_000
"""Tokens at the beginning of the training text in which frequencies are counted."""


class FrequentTokens:
    """The frequent tokens of a training text, and what each position computes."""

    def __init__(self, cache: TokenCache, index: DocumentIndex, count: int, seed: int) -> None:
        """Args:
        index: the training documents, in whose shards tokens are counted.
        count: how many tokens are frequent.
        """
        self.count, self._seed = count, seed
        counts, left = np.zeros(cache.vocab_size, np.int64), _COUNTED_TOKENS
        for shard in np.unique(index.shard).tolist():
            tokens = np.asarray(cache.tokens[shard][:left])
            counts += np.bincount(tokens, minlength=cache.vocab_size)
            left -= len(tokens)
        self.order = np.argsort(-counts, kind="stable")
        """Token ids, the most frequent first; of equal frequency the smaller id."""
        frequent = self.order[:count]
        self.covered = float(counts[frequent].sum() / max(1, counts.sum()))
        """Share of the counted tokens that are frequent."""
        self._is_frequent = np.zeros(cache.vocab_size, bool)
        self._is_frequent[frequent] = True

    def kinds(self, targets_T: NDArray[np.int64], sample: int) -> NDArray[np.uint8]:
        """Return what each position of a row computes: NEAR (also without a target), WHOLE or DRAWN."""
        drawn = keyed_random(len(targets_T), self._seed, sample, _PURPOSE)
        is_drawn = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53 < DRAWN_SHARE
        kinds = np.where(self._is_frequent[targets_T], np.where(is_drawn, DRAWN, NEAR), WHOLE)
        return np.where(targets_T >= 0, kinds, NEAR).astype(np.uint8)
