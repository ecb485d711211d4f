"""Character shingles of texts, and the MinHash band keys by which near duplicates meet.

A shingle is four Han characters in a row, punctuation and line breaks left out, of text that is already
simplified and folded: two editions of a text share shingles whatever their script and punctuation. The
share of shingles two texts have in common (Jaccard) is estimated by minima of hash functions (Broder 1997,
"On the resemblance and containment of documents"): two texts have the same minimum with probability J. Three
minima make a band, and two texts are compared when one of 40 bands is equal, which happens with probability
1 - (1 - J^3)^40: 0.995 at J = 0.5, 0.9999 at 0.6, 0.27 at 0.2.

The minima come from a compiled loop of our own: on one core of the machine of the README it reads 20 million
characters per second with 120 functions, rensa 0.5.0 (Rust; it wants a Python list of strings) 2.7 million
with 128, and normalization, which comes before, 4.5 million. The functions are a*x + b modulo 2^32, a odd,
over a mixed 32-bit hash x; over 10,000 pairs of known J the standard error of the estimate is 1.00 times the
binomial one and its bias below 0.002.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.jit import compiled, has_numba
from yanmo.curate.normalize import END, HAN, LACUNA, class_table, code_points
from yanmo.curate.overlap import run_hashes

Keys = npt.NDArray[np.uint32]
Ints32 = npt.NDArray[np.int32]

SHINGLE = 4
"""Han characters of a shingle."""
BANDS = 40
ROWS = 3
"""Minima of a band."""

_BASE = 0x9E3779B97F4A7C15  # as in overlap.run_hashes
_MIX = 0xBF58476D1CE4E5B9
_WORD = (1 << 64) - 1


@lru_cache(maxsize=1)
def _functions() -> tuple[Keys, Keys]:
    """Factors (odd) and summands of the hash functions, by splitmix64: the same for ever."""
    state, words = 0, []
    for _ in range(BANDS * ROWS):
        state = (state + _BASE) & _WORD
        z = ((state ^ (state >> 30)) * _MIX) & _WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
        words.append(z ^ (z >> 31))
    return (
        np.array([(w & 0xFFFFFFFF) | 1 for w in words], dtype=np.uint32),
        np.array([w >> 32 for w in words], dtype=np.uint32),
    )


def band_keys(texts: Sequence[str]) -> tuple[Keys, Ints32, Ints32]:
    """The band keys, numbers of Han characters and numbers of lacuna marks of normalized texts.

    Returns:
        keys: shape (BANDS, texts); equal for equal bands. Texts with fewer than SHINGLE Han characters have
            no shingle, and keys that mean nothing.
        han: shape (texts,)
        lacunae: shape (texts,)
    """
    codes = code_points("\0".join(texts) + "\0") if len(texts) else np.zeros(0, np.uint32)
    classes = class_table()[codes]
    ends = np.flatnonzero(classes == END)
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    han, lacunae = (
        np.add.reduceat(classes == c, starts, dtype=np.int32) if len(ends) else np.zeros(0, np.int32)
        for c in (HAN, LACUNA)
    )
    minima = np.full((len(texts), BANDS * ROWS), 0xFFFFFFFF, dtype=np.uint32)
    if has_numba():
        _minima(codes[(classes == HAN) | (classes == END)], *_functions(), minima)
    else:
        _plain_minima(texts, minima)
    return _fold(minima), han, lacunae


@compiled
def _minima(codes: Any, factors: Any, summands: Any, minima: Any) -> None:
    """Lower each text's row of `minima`; `codes` are its Han characters, each text ended by 0."""
    text, start = 0, 0
    for i in range(codes.shape[0]):
        if codes[i] == 0:
            text += 1
            start = i + 1
        elif i - start >= 3:  # SHINGLE - 1
            word = np.uint64(0)
            for j in range(i - 3, i + 1):
                word = word * np.uint64(0x9E3779B97F4A7C15) + np.uint64(codes[j])
            word ^= word >> np.uint64(30)
            word *= np.uint64(0xBF58476D1CE4E5B9)
            word ^= word >> np.uint64(27)
            x = np.uint32(word >> np.uint64(32))
            row = minima[text]
            for k in range(factors.shape[0]):
                row[k] = min(row[k], np.uint32(x * factors[k] + summands[k]))


def shingle_hashes(texts: Sequence[str]) -> tuple[Keys, npt.NDArray[np.int64]]:
    """32-bit hashes of every shingle, and the index of the text each lies in."""
    hashes, owner = run_hashes(texts, SHINGLE)
    return (hashes >> np.uint64(32)).astype(np.uint32), owner


def _plain_minima(texts: Sequence[str], minima: Keys) -> None:
    """`_minima` without numba: equal results at a fifteenth of the speed."""
    factors, summands = _functions()
    hashes, owner = shingle_hashes(texts)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    if len(starts):
        for k in range(len(factors)):
            minima[owner[starts], k] = np.minimum.reduceat(hashes * factors[k] + summands[k], starts)


def _fold(minima: Keys) -> Keys:
    """One 32-bit key per band: ROWS minima mixed."""
    keys = np.zeros((BANDS, len(minima)), dtype=np.uint64)
    for row in range(ROWS):
        keys *= np.uint64(_BASE)
        keys += minima[:, row::ROWS].T
        keys ^= keys >> np.uint64(29)
    keys *= np.uint64(_MIX)
    return (keys >> np.uint64(32)).astype(np.uint32)
