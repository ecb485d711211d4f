"""The segmentation loop: Viterbi over a unigram vocabulary, from UTF-8 bytes to token ids.

It reads the vocabulary of a Hugging Face Unigram `tokenizer.json` and returns the same ids as `tokenizers`:
with the same scores in double precision, the same rule for ties, the same penalty and the same bytes for an
unknown character. Text and ids are plain arrays: no Python object per document.

`tokenizers` looks forward from each character and writes to every position that a piece reaches; of equally
good paths the first found stays, which is the one with the longest last piece. Here each position looks back
over the pieces that end there, shortest first, and takes a longer one that is as good: the same choice, with
one write per character and the sum so far in a register (1.2 to 1.5 times as fast).

So the vocabulary is a trie of reversed pieces. Its edges are in one hash table of one word per slot,
(node, code point, child); nine of ten look-ups of a first edge find nothing, and a filter of one bit per
(last character, character before it) answers them from the L1 cache with one predictable branch (another 1.3
times as fast). Of two ASCII characters, most of which are found, a table gives the edge itself (1.15 times as
fast on documentation). The tables are built by numpy alone, so that only one loop is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yanmo.common.errors import DataError
from yanmo.common.jit import compiled

Array = np.ndarray[Any, np.dtype[Any]]
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_CODE_POINTS = 0x110000
_NODE_BITS = 21
_NODE = np.uint64(_NODE_BITS)
_NODE_MASK = np.uint64((1 << _NODE_BITS) - 1)
_LENGTH_BITS = 16
_LENGTH_MASK = (1 << _LENGTH_BITS) - 1
_SLOTS_PER_EDGE = 2
_FILTER_BITS_PER_EDGE = 16
"""Measured with 32,768 pieces, MB per CPU-second: 156; with 8 or 4 bits 143 and 125; with 1 or 3 slots, which
come to half and twice the memory, 138 and 111 (2 MiB of second-level cache for two CPUs)."""
_UNKNOWN_PENALTY = 10.0
"""Penalty of an unknown character below the lowest score (K_UNK_PENALTY in tokenizers' unigram/model.rs)."""


@dataclass(frozen=True)
class Trie:
    """A vocabulary that can be searched from the ends of its pieces."""

    root: Array
    """int32 (0x110000): node of a last character; 0 for one that ends no piece."""
    slots: Array
    """uint64 (2^n): node << 42 | code point << 21 | child; 0 is empty."""
    filter: Array
    """uint64 (2^m / 64): a bit is set where a first edge may be."""
    ascii: Array
    """int32 (128 * 128): node that the first edge of two ASCII characters leads to, or 0."""
    piece: Array
    """int32 (nodes): id of the piece that begins here, or -1."""
    score: Array
    """float64 (nodes): its score; minus infinity where there is none, the unknown's for one character."""
    onward: Array
    """uint64 (nodes): bits of the code points modulo 64 for which an edge may lead on."""


def build_trie(pieces: Sequence[str], scores: Sequence[float]) -> Trie:
    """Return the trie of `pieces`, whose ids are their positions; 0.5 s for 350,000 words.

    Raises:
        DataError: the pieces are too many or too long for the kernel's packed words.
    """
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    last = np.cumsum(lengths) - 1
    codes = np.frombuffer("".join(pieces).encode("utf-32-le"), np.uint32).astype(np.uint64)
    some = np.flatnonzero(lengths > 0)
    ends, inverse = np.unique(codes[last[some]], return_inverse=True)
    node = np.zeros(len(pieces), np.int64)
    node[some] = inverse + 1
    first_edges, edges, count = np.empty(0, np.uint64), [np.empty(0, np.uint64)], len(ends) + 1
    for depth in range(1, int(lengths.max(initial=0))):
        some = np.flatnonzero(lengths > depth)
        key = node[some].astype(np.uint64) << _NODE | codes[last[some] - depth]
        edge, inverse = np.unique(key, return_inverse=True)
        node[some] = count + inverse
        edges.append(edge)
        first_edges = edge if depth == 1 else first_edges
        count += len(edge)
    if count > _NODE_MASK or lengths.max(initial=0) > _LENGTH_MASK:
        raise DataError(
            f"a vocabulary of {count} trie nodes and pieces of up to {lengths.max(initial=0)} characters; "
            f"the kernel takes {int(_NODE_MASK)} and {_LENGTH_MASK}: use a smaller tokenizer"
        )
    every = np.concatenate(edges)
    piece, score = np.full(count, -1, np.int32), np.full(count, -np.inf)
    score[: len(ends) + 1] = min(scores) - _UNKNOWN_PENALTY
    some = np.flatnonzero(lengths > 0)
    piece[node[some]], score[node[some]] = some, np.asarray(scores, np.float64)[some]
    root, onward = np.zeros(_CODE_POINTS, np.int32), np.zeros(count, np.uint64)
    root[ends.astype(np.int64)] = np.arange(1, len(ends) + 1)
    np.bitwise_or.at(onward, (every >> _NODE).astype(np.int64), np.uint64(1) << (every & np.uint64(63)))
    table = _hash_table(every, len(ends) + 1)
    first = ends[(first_edges >> _NODE).astype(np.int64) - 1].astype(np.int64), first_edges & _NODE_MASK
    ascii, both = np.zeros((128, 128), np.int32), np.flatnonzero((first[0] < 128) & (first[1] < 128))
    ascii[first[0][both], first[1][both].astype(np.int64)] = len(ends) + 1 + both
    return Trie(root, table, _filter(first_edges), ascii.ravel(), piece, score, onward)


def _hash_table(edges: Array, first_child: int) -> Array:
    """Edges with their children, by slot; linear probing. Edge `k` leads to node `first_child + k`.

    All edges look for a slot at once; those whose slot is taken go on to the next one.
    """
    bits = max(10, (_SLOTS_PER_EDGE * len(edges)).bit_length())
    slots = np.zeros(1 << bits, np.uint64)
    words = edges << _NODE | np.arange(first_child, first_child + len(edges), dtype=np.uint64)
    slot = ((edges * _MULTIPLIER) >> np.uint64(64 - bits)).astype(np.int64)
    left = np.arange(len(edges))
    while len(left):
        free = left[slots[slot[left]] == 0]
        _, winners = np.unique(slot[free], return_index=True)
        won = free[winners]
        slots[slot[won]] = words[won]
        left = left[slots[slot[left]] != words[left]]
        slot[left] = (slot[left] + 1) & ((1 << bits) - 1)
    return slots


def _filter(edges: Array) -> Array:
    """Return the bits of the first edges."""
    bits = max(10, (_FILTER_BITS_PER_EDGE * len(edges)).bit_length())
    place = (edges * _MULTIPLIER) >> np.uint64(64 - bits)
    found = np.zeros(1 << (bits - 6), np.uint64)
    bit = np.uint64(1) << (place & np.uint64(63))
    np.bitwise_or.at(found, (place >> np.uint64(6)).astype(np.int64), bit)
    return found


def segment(
    trie: Trie, text: Array, offsets: Array, byte0: int, bos: int = -1, eos: int = -1
) -> tuple[Array, Array, Array]:
    """Token ids of documents.

    Args:
        text: uint8, valid UTF-8 of the documents, one after another.
        offsets: int64 (documents + 1), where each begins in `text`.
        byte0: id of the piece of byte 0; the others follow it.
        bos, eos: ids put before and after each document; -1 for none.

    Returns:
        ids (int32), offsets of each document in them (int64, documents + 1), characters of each that are
        not white space (int32).
    """
    documents = len(offsets) - 1
    longest = int(np.diff(offsets).max(initial=0)) + 1
    # A piece covers at least one byte, so there are never more ids than bytes (4 per character).
    ids = np.empty(int(offsets[-1] - offsets[0]) + 2 * documents, np.int32)
    ids_offsets, characters = np.zeros(documents + 1, np.int64), np.zeros(documents, np.int32)
    used = _segment(
        text,
        np.ascontiguousarray(offsets, np.int64),
        trie.root,
        trie.slots,
        np.uint64(65 - len(trie.slots).bit_length()),
        trie.filter,
        np.uint64(59 - len(trie.filter).bit_length()),
        trie.ascii,
        trie.piece,
        trie.score,
        trie.onward,
        byte0,
        bos,
        eos,
        np.empty(longest, np.int32),
        np.empty(longest, np.float64),
        np.empty(longest, np.int64),
        ids,
        ids_offsets,
        characters,
    )
    return ids[:used], ids_offsets, characters


# Legend of the loops below:
#   codes[i]   code point of the document's i-th character, from 1 on; codes[0] is none, with no edge
#   best[i]    score of the best way to write its first i characters
#   chosen[i]  node << 16 | characters of the last piece of that way


@compiled
def _segment(
    text: Array,
    offsets: Array,
    root: Array,
    slots: Array,
    shift: np.uint64,
    filter: Array,
    filter_shift: np.uint64,
    ascii: Array,
    piece: Array,
    score: Array,
    onward: Array,
    byte0: int,
    bos: int,
    eos: int,
    codes: Array,
    best: Array,
    chosen: Array,
    ids: Array,
    ids_offsets: Array,
    characters: Array,
) -> int:
    used = 0
    for d in range(len(offsets) - 1):
        at, end, n, visible = offsets[d], offsets[d + 1], 0, 0
        here, best[0], codes[0] = 0.0, 0.0, _CODE_POINTS
        while at < end:
            c, at = _decode(text, at)
            before, codes[n + 1] = codes[n], c
            visible += not _is_space(c)
            node = np.uint64(root[c])
            here += score[node]
            choice = np.int64(node) << _LENGTH_BITS | 1
            edge = node << _NODE | np.uint64(before)
            place = (edge * _MULTIPLIER) >> filter_shift
            node = np.uint64(0)
            if c | before < 0x80:
                node = np.uint64(ascii[c << 7 | before])
            elif (filter[place >> np.uint64(6)] >> (place & np.uint64(63))) & np.uint64(1):
                node = _child(slots, shift, edge)
            i = n
            while node != np.uint64(0):  # over longer and longer pieces that end here
                i -= 1
                total = score[node] + best[i]
                if total >= here:  # of equals the longest, as in tokenizers
                    here, choice = total, np.int64(node) << _LENGTH_BITS | (n + 1 - i)
                code = np.uint64(codes[i])
                if not (onward[node] >> (code & np.uint64(63))) & np.uint64(1):
                    break
                node = _child(slots, shift, node << _NODE | code)
            n += 1
            best[n], chosen[n] = here, choice
        characters[d] = visible
        if bos >= 0:
            ids[used] = bos
            used += 1
        used = _write(codes, n, chosen, piece, byte0, ids, used)
        if eos >= 0:
            ids[used] = eos
            used += 1
        ids_offsets[d + 1] = used
    return used


@compiled
def _decode(text: Array, at: int) -> tuple[Any, Any]:
    """Return the code point at `text[at]` and where the next one begins."""
    lead = np.int32(text[at])
    if 0xE0 <= lead < 0xF0:  # Chinese characters first
        c = (lead & 0x0F) << 12 | (np.int32(text[at + 1]) & 0x3F) << 6 | np.int32(text[at + 2]) & 0x3F
        return np.int32(c), at + 3
    if lead < 0x80:
        return lead, at + 1
    if lead < 0xE0:
        return np.int32((lead & 0x1F) << 6 | np.int32(text[at + 1]) & 0x3F), at + 2
    c = (lead & 0x07) << 18 | (np.int32(text[at + 1]) & 0x3F) << 12
    c |= (np.int32(text[at + 2]) & 0x3F) << 6 | np.int32(text[at + 3]) & 0x3F
    return np.int32(c), at + 4


@compiled
def _is_space(c: Any) -> bool:
    """Return whether str.isspace() holds for a character."""
    if c > 0x3000:
        return False
    if c < 0x80:
        return bool(c == 0x20 or 0x09 <= c <= 0x0D or 0x1C <= c <= 0x1F)
    return bool(
        c == 0x85
        or c == 0xA0
        or c == 0x1680
        or 0x2000 <= c <= 0x200A
        or c == 0x2028
        or c == 0x2029
        or c == 0x202F
        or c == 0x205F
        or c == 0x3000
    )


@compiled
def _child(slots: Array, shift: np.uint64, key: np.uint64) -> np.uint64:
    """Return the node that the edge `key` leads to; 0 where there is no such edge."""
    mask = np.uint64(len(slots) - 1)
    slot = (key * _MULTIPLIER) >> shift
    while slots[slot] >> _NODE != key and slots[slot] != np.uint64(0):
        slot = (slot + np.uint64(1)) & mask
    found: np.uint64 = slots[slot] & _NODE_MASK
    return found


@compiled
def _write(codes: Array, n: int, chosen: Array, piece: Array, byte0: int, ids: Array, used: int) -> int:
    """Write the ids of the best path from `ids[used]` on; they are found in reverse order."""
    left, i = used, n
    while i > 0:
        choice = chosen[i]
        i -= choice & _LENGTH_MASK
        found = piece[choice >> _LENGTH_BITS]
        if found >= 0:
            ids[used] = found
            used += 1
        else:
            used = _write_bytes(codes[i + 1], byte0, ids, used)
    right = used - 1
    while left < right:
        ids[left], ids[right] = ids[right], ids[left]
        left += 1
        right -= 1
    return used


@compiled
def _write_bytes(c: Any, byte0: int, ids: Array, used: int) -> int:
    """Write the UTF-8 of a character, its last byte first."""
    if c < 0x80:
        ids[used] = byte0 + c
        return used + 1
    ids[used] = byte0 + (0x80 | c & 0x3F)
    if c < 0x800:
        ids[used + 1] = byte0 + (0xC0 | c >> 6)
        return used + 2
    ids[used + 1] = byte0 + (0x80 | c >> 6 & 0x3F)
    if c < 0x10000:
        ids[used + 2] = byte0 + (0xE0 | c >> 12)
        return used + 3
    ids[used + 2] = byte0 + (0x80 | c >> 12 & 0x3F)
    ids[used + 3] = byte0 + (0xF0 | c >> 18)
    return used + 4
