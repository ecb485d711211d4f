"""What is drawn for each position of a training row: other tokens to read, and which logits it computes.

Each draw depends on nothing but the seed, the sample's number and the position: ranks, micro batches and a
resume see the same one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from yanmo.formats.packing import keyed_random
from yanmo.formats.token_cache import DocumentIndex, TokenCache

_OF_NOISE, _OF_KINDS = 3, 4
"""Purpose numbers for `keyed_random`; packing has 0 to 2."""
NEAR, WHOLE, DRAWN = 0, 1, 2
"""A position computes the logits of frequent tokens alone; all of them; all, for others of its kind too."""
DRAWN_SHARE = 0.05
"""Share of the positions with frequent targets that compute all logits."""
_COUNTED_TOKENS = 50_000_000
"""Tokens at the beginning of the training text in which frequencies are counted."""


def _below(drawn: NDArray[np.uint64], share: float) -> NDArray[np.bool_]:
    """Return which of these random numbers choose their position, of which `share` is to be chosen."""
    chosen: NDArray[np.bool_] = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53 < share
    return chosen


class TokenNoise:
    """Replaces a share of the input tokens by tokens drawn from the training text; the targets stay the same.

    So the model learns to predict from a slightly damaged context, another in each epoch. This is reported to
    lower the best validation loss where a small text is repeated many times (arXiv 2606.16246: 150 M
    parameters, 75 M tokens, 100 epochs; replacing 5 % was the best single method);
    docs/how-to/prepare-text.md has what it did here. Alternative not taken: uniform draws from the
    vocabulary, most of which is rare.
    """

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
        drawn = keyed_random(2 * count, self._seed, sample, _OF_NOISE)
        chosen = _below(drawn[:count], self._share)
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


class FrequentTokens:
    """The frequent tokens of a training text, and what each position computes (model/frequent_loss.py)."""

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
        drawn = keyed_random(len(targets_T), self._seed, sample, _OF_KINDS)
        is_drawn = _below(drawn, DRAWN_SHARE)
        kinds = np.where(self._is_frequent[targets_T], np.where(is_drawn, DRAWN, NEAR), WHOLE)
        return np.where(targets_T >= 0, kinds, NEAR).astype(np.uint8)
