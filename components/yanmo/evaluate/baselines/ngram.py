"""A character 5-gram with interpolated modified Kneser-Ney smoothing: the baseline every model must beat.

Chen & Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling" (TR-10-98), with the
conventions of KenLM's lmplz, so that results can be compared: one begin symbol per document, raw counts
for n-grams that begin with it, one end symbol that is charged, unigrams interpolated with a uniform
distribution over the vocabulary, of which the unknown character is one word.

An n-gram is a row of one sorted array per order, keyed by (row of its context, last symbol); counting is
sorting, looking up is binary search, and both run in numpy without a Python loop over characters. Not
taken: hash tables in numba, which would save a third of the time and cost a compilation at first use.
Measured on 3.5 M characters: 5.4 CPU-seconds to train, 0.2 to score 131,000 characters, 0.9 GB at most
(about 220 bytes per training character; benchmarks/baselines.py at 12c635da).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

log = logging.getLogger(__name__)

BEGIN, END, UNKNOWN = 0, 1, 2
"""Symbols that are not characters; characters follow in code point order."""
_FIRST_CHARACTER = 3
UNSEEN_CHARACTERS = 100_000
"""An unknown character costs the unknown word's bits plus log2 of this: Unicode 16 holds about 98,000
Han characters, so this is a uniform choice among the characters never seen in training."""
_FALLBACK_DISCOUNTS = np.array([0.0, 0.5, 1.0, 1.5])
"""lmplz's --discount_fallback, for orders whose counts of counts allow no estimate (tiny texts)."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Order:
    """The n-grams of one order, sorted by key; row r of every array is the same n-gram."""

    keys: Ints
    """context row * number of symbols + last symbol."""
    probability: Floats
    """Interpolated probability of the last symbol after the context."""
    backoff: Floats
    """By row of the order below (a context): the weight of its shorter context's distribution; 1 where
    nothing was seen after it."""

    def rows(self, keys: Ints) -> Ints:
        """The rows of `keys`; -1 where one was never seen."""
        found = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where((keys >= 0) & (self.keys[found] == keys), found, -1)


class NgramModel:
    """A trained model; `document_bits` is what baselines need, `symbol_bits` what tests look at."""

    def __init__(self, characters: str, unigram: Floats, orders: Sequence[_Order]) -> None:
        self.characters = characters
        self._unigram = unigram
        self._orders = orders
        self._symbol_of = _symbol_table(characters)

    @classmethod
    def train(cls, documents: Iterable[str], order: int = 5) -> NgramModel:
        """Count and smooth.

        Args:
            documents: at least one text; every character counts, line breaks too.
            order: length of the longest n-gram, at least 2.
        """
        points = [_code_points(text) for text in documents]
        seen = np.unique(np.concatenate(points))
        characters = seen.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
        symbols, depth = _symbols(points, _symbol_table(characters))
        return cls(characters, *_smooth(symbols, depth, len(characters) + _FIRST_CHARACTER, order))

    @property
    def vocabulary(self) -> int:
        """How many symbols can follow a context: characters, the end and the unknown."""
        return len(self.characters) + 2

    def document_bits(self, documents: Sequence[str]) -> Floats:
        """Bits of each document, its end included.

        Returns:
            float64 of shape (len(documents),).
        """
        if not documents:
            return np.empty(0)
        bits = self.symbol_bits(documents)
        starts = np.cumsum([0, *(len(text) + 1 for text in documents[:-1])])
        return np.asarray(np.add.reduceat(bits, starts))

    def symbol_bits(self, documents: Sequence[str]) -> Floats:
        """Bits of every character and end symbol of `documents`, one after the other."""
        symbols, depth = _symbols([_code_points(text) for text in documents], self._symbol_of)
        charged = depth > 0
        bits = -np.log2(self._probabilities(symbols, depth)[charged])
        bits[symbols[charged] == UNKNOWN] += np.log2(UNSEEN_CHARACTERS)
        return np.asarray(bits)

    def _probabilities(self, symbols: Ints, depth: Ints) -> Floats:
        probability = self._unigram[symbols]
        rows = symbols
        for n, order in enumerate(self._orders, start=2):
            context = _shift(rows)
            context[depth < n - 1] = -1
            rows = order.rows(np.where(context >= 0, context * len(self._unigram) + symbols, -1))
            backed_off = probability * np.where(context >= 0, order.backoff[context], 1.0)
            probability = np.where(rows >= 0, order.probability[rows], backed_off)
        return probability


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _symbol_table(characters: str) -> npt.NDArray[np.int32]:
    """Code point -> symbol; UNKNOWN for characters that are not in `characters`."""
    table = np.full(0x110000, UNKNOWN, np.int32)
    table[_code_points(characters)] = np.arange(_FIRST_CHARACTER, _FIRST_CHARACTER + len(characters))
    return table


def _symbols(points: Sequence[npt.NDArray[np.uint32]], table: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
    """All documents as one row of symbols, BEGIN text END each, and each symbol's depth in its own."""
    lengths = np.array([len(p) + 2 for p in points])
    ends = np.cumsum(lengths)
    starts = ends - lengths
    symbols = np.full(ends[-1], BEGIN, np.int64)
    inside = np.ones(ends[-1], bool)
    inside[starts] = inside[ends - 1] = False
    symbols[inside] = table[np.concatenate(points)]
    symbols[ends - 1] = END
    return symbols, np.arange(ends[-1]) - np.repeat(starts, lengths)


def _shift(rows: Ints) -> Ints:
    """`rows` moved one position to the right: what ended just before each position."""
    moved = np.empty_like(rows)
    moved[0], moved[1:] = -1, rows[:-1]
    return moved


@dataclass(frozen=True)
class _Counts:
    """One order, counted: arrays by row, and `at`, the row of the n-gram that ends at each position."""

    keys: Ints
    context: Ints
    suffix: Ints
    count: Ints
    at: Ints


def _count(symbols: Ints, depth: Ints, below: Ints, n: int, num_symbols: int) -> _Counts:
    """Count order `n`; `below` holds the row of the shorter n-gram that ends at each position."""
    context = _shift(below)
    positions = np.flatnonzero(depth >= n - 1)
    keys = context[positions] * num_symbols + symbols[positions]
    order = np.argsort(keys)
    ordered = keys[order]
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    heads = np.flatnonzero(first)
    at = np.full(len(symbols), -1, np.int64)
    at[positions[order]] = np.cumsum(first) - 1
    return _Counts(
        keys=ordered[heads],
        context=ordered[heads] // num_symbols,
        suffix=below[positions[order[heads]]],
        count=np.diff(np.append(heads, len(ordered))),
        at=at,
    )


def _smooth(symbols: Ints, depth: Ints, num_symbols: int, order: int) -> tuple[Floats, list[_Order]]:
    """Unigram probabilities by symbol, and the orders from 2 up."""
    counted, below = [], symbols
    for n in range(2, order + 1):
        counted.append(_count(symbols, depth, below, n, num_symbols))
        below = counted[-1].at
    left = np.bincount(counted[0].suffix, minlength=num_symbols)
    unigram = _unigram(left)
    result, lower = [], unigram
    rows_below = num_symbols
    for n, counts in enumerate(counted, start=2):
        if not len(counts.keys):  # no document is long enough for this order
            break
        adjusted = counts.count
        if n < order:  # distinct left neighbours; none before BEGIN, where the count itself stands
            left = np.bincount(counted[n - 1].suffix, minlength=len(counts.keys))
            adjusted = np.where(left > 0, left, counts.count)
        share, backoff = _discounted(adjusted, counts.context, rows_below, n)
        lower = share + backoff[counts.context] * lower[counts.suffix]
        result.append(_Order(counts.keys, lower, backoff))
        rows_below = len(counts.keys)
    return unigram, result


def _unigram(left: Ints) -> Floats:
    """Probabilities by symbol from the number of distinct left neighbours; BEGIN never follows."""
    seen = left > 0
    rows = np.zeros(int(seen.sum()), np.int64)
    share, backoff = _discounted(left[seen], rows, 1, 1)
    vocabulary = len(left) - 1
    probability = np.full(len(left), backoff[0] / vocabulary)
    probability[seen] += share
    probability[BEGIN] = 0.0
    return probability


def _discounted(adjusted: Ints, context: Ints, num_contexts: int, n: int) -> tuple[Floats, Floats]:
    """Return what discounting leaves of each n-gram's probability, and what each context gives away."""
    discount = discounts(np.bincount(np.minimum(adjusted, 5), minlength=6)[:5], n)[np.minimum(adjusted, 3)]
    total = np.bincount(context, weights=adjusted, minlength=num_contexts)
    given = np.bincount(context, weights=discount, minlength=num_contexts)
    backoff = np.divide(given, total, out=np.ones(num_contexts), where=total > 0)
    return (adjusted - discount) / total[context], backoff


def discounts(counts_of_counts: Ints, n: int = 0) -> Floats:
    """D(0), D(1), D(2), D(3+) of modified Kneser-Ney.

    Args:
        counts_of_counts: [_, n1, n2, n3, n4]: how many n-grams have adjusted count 1, 2, 3, 4.
        n: the order, for the log.
    """
    n1, n2, n3, n4 = (float(value) for value in counts_of_counts[1:5])
    if min(n1, n2, n3, n4) > 0:
        y = n1 / (n1 + 2 * n2)
        found = np.array([0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
        if np.all(found >= 0) and np.all(found <= np.arange(4)):
            return found
    log.debug("order %d: counts of counts %s allow no discount; using the fallback", n, counts_of_counts[1:5])
    return _FALLBACK_DISCOUNTS
