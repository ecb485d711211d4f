"""The 5-gram's mixture: one of all training text and one of each genre, weighted for the genre at hand.

    p(character) = sum over models k of  weight[genre, k] p_k(character)

The weights are fitted on the other held-out split by expectation maximization, so the mixture knows the
genre, as a model with a genre tag does. Each model spreads what it gives to unknown characters evenly over
`UNSEEN_CHARACTERS`, so the mixture is a probability too. Models are trained one after the other and only
their bits are kept: the memory is that of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from yanmo.evaluate.baselines.ngram import NgramModel
from yanmo.evaluate.documents.reading import Document

Floats = npt.NDArray[np.float64]
_ROUNDS = 40
"""Rounds of expectation maximization; on the bundled corpus the fifth decimal of the bits no longer changes
after 20."""


def mixture_bits(
    training: Mapping[str, Sequence[str]], fitted: Sequence[Document], scored: Sequence[Document]
) -> tuple[Floats, Floats, dict[str, dict[str, float]]]:
    """Bits of documents under the 5-gram of all text and under the mixture.

    Args:
        training: genre -> texts.
        fitted: documents that the weights are fitted on; for a genre that has none here, on all of them.
        scored: documents whose bits are wanted.

    Returns:
        The 5-gram's bits by document, the mixture's, and genre -> model -> weight.
    """
    models = {"all": [t for texts in training.values() for t in texts], **training}
    texts = [d.text for d in (*fitted, *scored)]
    bits = np.stack([NgramModel.train(each).symbol_bits(texts) for each in models.values()])
    lengths = np.array([len(text) + 1 for text in texts])
    cut = int(lengths[: len(fitted)].sum())
    fitting, scoring = bits[:, :cut], bits[:, cut:]
    genre_at = np.repeat([d.genre for d in fitted], lengths[: len(fitted)])
    owner = np.repeat(np.arange(len(scored)), lengths[len(fitted) :])
    genres = np.array([d.genre for d in scored])
    mixed, weights = np.zeros(len(scored)), {}
    for genre in dict.fromkeys(genres.tolist()):
        at = genre_at == genre
        weight = fit_weights(fitting[:, at] if at.any() else fitting)
        here = genres[owner] == genre
        mixed += np.bincount(owner[here], _mixed(scoring[:, here], weight), minlength=len(scored))
        weights[genre] = {name: round(float(w), 4) for name, w in zip(models, weight, strict=True)}
    plain: Floats = np.bincount(owner, scoring[0], minlength=len(scored)).astype(np.float64)
    return plain, mixed.round(4), weights


def fit_weights(bits: Floats) -> Floats:
    """The weights of models under which these symbols cost least.

    Args:
        bits: shape (models, symbols); no symbols give equal weights.
    """
    weights = np.full(len(bits), 1 / len(bits))
    odds = np.exp2(bits.min(axis=0, initial=np.inf) - bits)  # scaled by symbol: nothing underflows at once
    for _ in range(_ROUNDS if bits.shape[1] else 0):
        shares = weights[:, None] * odds
        weights = (shares / shares.sum(axis=0)).mean(axis=1)
    return weights


def _mixed(bits: Floats, weights: Floats) -> Floats:
    least = bits.min(axis=0)
    return np.asarray(least - np.log2((weights[:, None] * np.exp2(least - bits)).sum(axis=0)))
