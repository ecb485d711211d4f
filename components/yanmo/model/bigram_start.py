"""First weights that already know the bigram statistics of the training text.

While the layers add nothing to the residual stream, a decoder's logits are `lm_head @ norm(embed_tokens[x])`:
a low-rank matrix over (token, next token). The best such matrix is a factorization of the smoothed
log p(next | token) / p(next), plus log p(next) along a constant direction. After 200 CPU-seconds of training
it gains about 0.23 bits per character over random weights. It needs an untied head, as the matrix is not
symmetric.

The smoothed matrix is constant along each row wherever a bigram was not seen, so it is a sparse matrix plus
a column times a row of ones: products with it take seconds less than with the dense V x V table.

A linear algebra library is free to choose the sign of a singular vector, and the basis of those whose values
are (nearly) equal; MKL and OpenBLAS choose differently, and each differs from processor to processor. So
nothing here depends on a basis, only on the space that it spans, and double precision is rounded to fp32 at
the end. The demo's first weights, computed on 16 code paths (MKL, OpenBLAS, ATen), differ by 2e-11 of their
norm; if the bases were used as they come, by 130 %. Double precision costs 0.8 CPU-seconds more.

    V = vocabulary, D = model width, R = D - 1 = rank
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yanmo.model.decoder import Decoder

_DISCOUNT = 0.75
"""Absolute discounting, as in Kneser-Ney."""
_WEIGHT_CAP = 3000
"""Weight of a row in the factorization: the square root of the token's count, of at most this count."""
_OVERSAMPLE = 16
_POWER_ITERATIONS = 2
_NOTHING = 1e-9
"""Singular values below this share of the largest are rounding errors: their vectors are arbitrary."""


@dataclass(frozen=True)
class Bigrams:
    """How often each token follows each other: parallel arrays sorted by `previous`, then `following`."""

    previous: NDArray[np.int64]
    following: NDArray[np.int64]
    count: NDArray[np.float64]


def count_bigrams(pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]], vocab_size: int) -> Bigrams:
    """Count (token, next token) pairs given as parallel arrays."""
    codes = [p.astype(np.int64) * vocab_size + n for p, n in pairs]
    unique, count = np.unique(np.concatenate(codes), return_counts=True)
    return Bigrams(unique // vocab_size, unique % vocab_size, count.astype(np.float64))


class _LogRatio:
    """The matrix log p(y | x) / p(y), (V, V), with weighted rows: multiplied without being made whole.

    Entry (x, y) is `base[x]` where the bigram was not seen, else `base[x] + excess`.
    """

    def __init__(self, bigrams: Bigrams, vocab_size: int) -> None:
        V, x, y, n = vocab_size, bigrams.previous, bigrams.following, bigrams.count
        unigram = np.bincount(y, n, V) + 0.5
        self.unigram = unigram / unigram.sum()
        self.total = np.bincount(x, n, V)
        kinds = np.bincount(x, minlength=V)
        left = np.where(self.total > 0, _DISCOUNT * kinds / np.maximum(self.total, 1), 1.0)
        seen = (n - _DISCOUNT) / self.total[x] / self.unigram[y] + left[x]
        excess = np.log(seen) - np.log(left)[x]
        weight = np.sqrt(np.minimum(self.total + 1, _WEIGHT_CAP))
        self.base = torch.from_numpy(np.log(left))[:, None]
        self.weight = torch.from_numpy(weight)[:, None]
        self._rows = _csr(x, y, excess, V)
        self._columns = _csr(y, x, excess, V)

    def times(self, right_VR: Tensor) -> Tensor:
        """Unweighted matrix times `right_VR`."""
        return self._rows @ right_VR + self.base * right_VR.sum(0)

    def transposed_times(self, left_VR: Tensor) -> Tensor:
        """Transposed weighted matrix times `left_VR`."""
        weighted = self.weight * left_VR
        return self._columns @ weighted + (self.base * weighted).sum(0)


def _csr(rows: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[np.float64], V: int) -> Tensor:
    order = np.lexsort((columns, rows))
    bounds = np.searchsorted(rows[order], np.arange(V + 1))
    places, numbers = columns[order], values[order]
    with warnings.catch_warnings():  # that CSR tensors are "in beta" (torch 2.13)
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(
            torch.from_numpy(bounds),
            torch.from_numpy(places),
            torch.from_numpy(numbers),
            size=(V, V),
            check_invariants=True,
        )


@torch.no_grad()
def set_bigram_start(
    decoder: Decoder, bigrams: Bigrams, generator: torch.Generator, embedding_std: float
) -> None:
    """Set embedding and head of an initialized decoder from bigram counts; its layers must write nothing.

    Args:
        bigrams: those of the training text, and the tokens that follow `<|bos|>` and the genre tags.
        generator: draws the random projections.
        embedding_std: standard deviation of the embedding; a large one (1.0) preserves the statistics
            longer, as one Adam step of 0.01 would wipe out a small one.
    """
    config = decoder.config
    V, rank = config.vocab_size, config.hidden_size - 1
    matrix = _LogRatio(bigrams, V)
    right_VR = right_factors = _right_factors(matrix, rank, generator)
    rows_VR = matrix.times(right_VR)
    rms = rows_VR.pow(2).mean().sqrt().clamp(min=1e-12)  # 0 where no token follows another
    rows_VR, right_VR = rows_VR / rms, right_VR * rms
    # A constant coordinate carries log p(y), and is large enough that the final norm is nearly constant.
    constant = math.sqrt(rank)
    embedding = torch.cat([rows_VR, rows_VR.new_full((V, 1), constant)], 1)
    frequency = torch.from_numpy(matrix.total + 1)
    norm = float((embedding.pow(2).mean(1).sqrt() * frequency).sum() / frequency.sum())
    log_unigram = torch.from_numpy(np.log(matrix.unigram))[:, None]
    head = torch.cat([right_VR * norm, log_unigram * (norm / constant)], 1)
    # A random rotation spreads the constant over all coordinates. It is drawn on the vocabulary's side, not
    # on the factors' side, so that another basis of the factors' space is turned to the same weights.
    drawn = torch.randn(V + 1, rank + 1, dtype=torch.float64, generator=generator)
    rotation = _nearest_rotation(torch.cat([right_factors.T @ drawn[:-1], drawn[-1:]]))
    scale = embedding_std / float(embedding.pow(2).mean().sqrt())
    decoder.model.embed_tokens.weight.copy_(embedding @ rotation * scale)
    decoder.lm_head.weight.copy_(head @ rotation)


def _nearest_rotation(matrix: Tensor) -> Tensor:
    """Return the orthogonal factor of the polar decomposition: unlike Q or U it is unique."""
    left, _, right = torch.linalg.svd(matrix)
    rotation: Tensor = left @ right
    return rotation


def _right_factors(matrix: _LogRatio, rank: int, generator: torch.Generator) -> Tensor:
    """An orthonormal basis of the first right singular vectors' space, (V, rank), by randomized SVD.

    Where the matrix has fewer singular values above zero than the model's width asks for, the rest is zeros.
    So are vectors whose singular value equals the first one that is left out: which of equals to keep would
    be the library's choice (on a text of four tokens the weights differed by 0.48).
    """
    V = len(matrix.base)
    wide = min(rank + _OVERSAMPLE, V)
    drawn = torch.randn(V, wide, dtype=torch.float64, generator=generator)
    sketch = matrix.weight * matrix.times(drawn)
    for _ in range(_POWER_ITERATIONS):
        sketch = torch.linalg.qr(sketch)[0]
        sketch = torch.linalg.qr(matrix.transposed_times(sketch))[0]
        sketch = matrix.weight * matrix.times(sketch)
    basis = torch.linalg.qr(sketch)[0]
    vectors, values, _ = torch.linalg.svd(matrix.transposed_times(basis), full_matrices=False)
    vectors = vectors * (values > _NOTHING * values[0])
    if rank < len(values):
        vectors = vectors * (values > values[rank] + _NOTHING * values[0])
    missing = vectors.new_zeros(V, max(rank - vectors.shape[1], 0))
    return torch.cat([vectors[:, :rank], missing], 1).contiguous()
