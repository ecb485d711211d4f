"""How much a text repeats itself: Gopher's measures (arXiv 2112.11446, table A1), as in datatrove 0.10.

datatrove joins each n-gram to a string and counts strings. Here words are numbers, n-grams are 64-bit hashes
in a hash table with open addressing, and the loop is compiled.
`tests/components/curate/text/test_repetition.py` compares both on real text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from yanmo.common.jit import compiled

Ints = npt.NDArray[np.int64]

TOP_SIZES = (2, 3, 4)
REPEATED_SIZES = (5, 6, 7, 8, 9, 10)


def repetition(words: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Characters in repeated n-grams of a text.

    Args:
        words: a number for each word, equal numbers for equal words; shape (words,).
        lengths: characters of each word; shape (words,).

    Returns:
        For each of TOP_SIZES, the characters of all occurrences of the commonest n-gram, with a space between
        words (occurrences overlap, so this may exceed the length of the text); for each of REPEATED_SIZES,
        the characters of n-grams that occurred before, counted without overlap."""
    slots = 1 << max(4, int(2 * len(words) + 1).bit_length())
    tables = np.zeros((4, slots), dtype=np.int64)
    result = np.zeros(len(TOP_SIZES) + len(REPEATED_SIZES), dtype=np.int64)
    sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
    sizes = np.array((*TOP_SIZES, *REPEATED_SIZES))
    with np.errstate(over="ignore"):  # hashes wrap
        _count(words.astype(np.int64), sums, tables, sizes, len(TOP_SIZES), result)
    return result[: len(TOP_SIZES)], result[len(TOP_SIZES) :]


@compiled
def _count(words: Ints, sums: Ints, tables: Ints, sizes: Ints, tops: int, result: Ints) -> None:
    """Fill `result`. A slot of the hash table holds an n-gram's hash, how often and where first it occurred,
    and the round that used the slot, so that the table need not be cleared."""
    keys, counts, firsts, used = tables[0], tables[1], tables[2], tables[3]
    mask = len(keys) - 1
    for number in range(len(sizes)):
        n = sizes[number]
        start, repeated, best_count, best_first = 0, 0, 0, 0
        while start + n <= len(words):
            key = 0
            for i in range(start, start + n):
                key = ((key ^ (words[i] + 0x1234567)) * 0x2545F4914F6CDD1D) & 0x7FFFFFFFFFFFFFFF
                key ^= key >> 29
            slot = key & mask
            while used[slot] == number + 1 and keys[slot] != key:
                slot = (slot + 1) & mask
            is_new = used[slot] != number + 1
            if is_new:
                keys[slot], used[slot], counts[slot], firsts[slot] = key, number + 1, 0, start
            counts[slot] += 1
            if number < tops or is_new:
                # of several commonest n-grams, the one that occurred first counts
                if counts[slot] > best_count or (counts[slot] == best_count and firsts[slot] < best_first):
                    best_count, best_first = counts[slot], firsts[slot]
                start += 1
            else:
                repeated += sums[start + n] - sums[start]
                start += n
        if number >= tops:
            result[number] = repeated
        elif best_count:
            result[number] = best_count * (sums[best_first + n] - sums[best_first] + n - 1)
