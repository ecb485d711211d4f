"""Shingles of texts, and the MinHash band keys by which near duplicates meet.

A shingle is four units in a row (chinese/text_runs.py) of what is compared: in classical text the simplified
and folded Han characters, so that two editions share shingles whatever their script and punctuation; in
modern text words, numbers and code too. The share of shingles two texts have in common (Jaccard) is estimated
by minima of hash functions (Broder 1997, "On the resemblance and containment of documents"): two texts have
the same minimum with probability J. Three minima make a band, and two texts are compared when one of 40 bands
is equal, which happens with probability 1 - (1 - J^3)^40: 0.995 at J = 0.5, 0.9999 at 0.6, 0.27 at 0.2.

The minima are rensa's (Rust; R-MinHash, after "Fast Similarity Sketching", arXiv 1704.04370): a function of
the set of shingles and the seed alone. It is given hashed shingles as one numpy array, and is no slower than
normalization, which comes before. How good its estimate is: benchmarks/NOTES.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

from yanmo.chinese.text_runs import Hashes, Ints, hashes_of, run_hashes, units

Keys = npt.NDArray[np.uint32]
Ints32 = npt.NDArray[np.int32]

SHINGLE = 4
"""Units of a shingle."""
BANDS = 40
ROWS = 3
"""Minima of a band."""

_SEED = 42
_BATCH = 250
"""Texts signed together: rensa starts threads from 256 on, and hands minima over as Python integers (5 kB per
text)."""
_BASE = 0x9E3779B97F4A7C15  # as in text_runs.run_hashes
_MIX = 0xBF58476D1CE4E5B9


def band_keys(texts: Sequence[str]) -> tuple[Keys, Ints32]:
    """Return the band keys and the numbers of units of texts.

    Args:
        texts: what is compared of documents.

    Returns:
        keys: shape (BANDS, texts); equal for equal bands. Texts with fewer than SHINGLE units have no
            shingle, and keys that mean nothing.
        sizes: shape (texts,)
    """
    codes, owner = units(texts)
    sizes = np.bincount(owner, minlength=len(texts)).astype(np.int32)
    return _fold(_minima(*hashes_of(codes, owner, SHINGLE), len(texts))), sizes


def _minima(hashes: Hashes, owner: Ints, texts: int) -> Keys:
    """Return minima of each text's shingles, shape (texts, BANDS * ROWS); all bits set if it has none."""
    bounds = np.searchsorted(owner, np.arange(texts + 1)).astype(np.uint64)
    minima = array("I")
    for start in range(0, texts, _BATCH):
        part = bounds[start : start + _BATCH + 1]
        signed = RMinHash.digest_matrix_from_flat_token_hashes(
            hashes[part[0] : part[-1]], part - part[0], BANDS * ROWS, _SEED
        )
        for row in signed.to_rows():
            minima.fromlist(row)  # twice as fast as an array of the rows
    return np.array(minima, dtype=np.uint32).reshape(texts, BANDS * ROWS)


def shingle_hashes(texts: Sequence[str]) -> tuple[Keys, Ints]:
    """32-bit hashes of every shingle, and the index of the text each lies in."""
    hashes, owner = run_hashes(texts, SHINGLE)
    return (hashes >> np.uint64(32)).astype(np.uint32), owner


def _fold(minima: Keys) -> Keys:
    """One 32-bit key per band: ROWS minima mixed."""
    keys = np.zeros((BANDS, len(minima)), dtype=np.uint64)
    for row in range(ROWS):
        keys *= np.uint64(_BASE)
        keys += minima[:, row::ROWS].T
        keys ^= keys >> np.uint64(29)
    keys *= np.uint64(_MIX)
    return (keys >> np.uint64(32)).astype(np.uint32)
