"""The order in which documents are taken: drawn by the seed, whatever their numbers are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.disk_arrays import group_starts, new_array, rows_of, slices, sorted_order, tied

Ints = npt.NDArray[np.signedinteger[Any]]
Words = npt.NDArray[np.uint64]


def drawn_order(ids: Callable[[Ints], Iterable[str]], count: int, seed: int) -> Ints:
    """Numbers of documents in an order that depends on the seed and on their ids, not on their numbers.

    Args:
        ids: gives the ids of some of them, by their numbers.
        count: of all documents.
    """

    def digests(numbers: Ints) -> Iterator[bytes]:
        return (hashlib.sha256(f"{seed}\0{id}".encode()).digest() for id in ids(numbers))

    def whole(numbers: Ints) -> npt.NDArray[np.uint8]:
        return np.frombuffer(b"".join(digests(numbers)), np.uint8).reshape(-1, 32)

    words = new_array(count, np.uint64)
    for some in slices(count):
        numbers = rows_of(some)
        each = (int.from_bytes(digest[:8]) for digest in digests(numbers))
        words[some] = np.fromiter(each, np.uint64, len(numbers))
    return order_of(words, whole)


def first_words(digests: npt.NDArray[np.uint8]) -> Words:
    """Return the first 8 bytes of each digest (n, 32) as a number."""
    return np.ascontiguousarray(digests[:, :8]).view(">u8")[:, 0].astype(np.uint64)


def order_of(first: Words, whole: Callable[[Ints], npt.NDArray[np.uint8]]) -> Ints:
    """Positions of digests from the smallest to the largest.

    Args:
        first: `first_words` of the digests.
        whole: gives the digests at some positions, (n, 32). It is called for those whose first bytes are
            equal: two of 4 million documents once in 2 million corpora.
    """
    order = sorted_order(lambda some: [first[some]], len(first))
    places = tied(group_starts(lambda some: [first[some]], order))
    if len(places):
        equal = order[places]
        words = np.ascontiguousarray(whole(equal)).view(">u8").astype(np.uint64)
        order[places] = equal[np.lexsort(words.T[::-1])]
    return order
