"""The loop that segments: Viterbi over a unigram vocabulary, from UTF-8 bytes to token ids.

It reads the vocabulary of a Hugging Face Unigram `tokenizer.json` and gives the ids that `tokenizers` gives:
the same forward search in double precision, the same rule for ties (the first found stays), the same price
of an unknown character, the same bytes for it. Text and ids are plain arrays: no Python object per document.

The vocabulary is a trie whose edges lie in one open-addressing hash table, (node, code point) -> node; the
first level is a direct table. The tables are built by numpy alone, so that only one loop is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yanmo.common.jit import compiled

Array = np.ndarray[Any, np.dtype[Any]]
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_CODE_POINTS = 0x110000
_UNKNOWN_PENALTY = 10.0
"""What an unknown character costs below the least score (K_UNK_PENALTY in tokenizers' unigram/model.rs)."""


@dataclass(frozen=True)
class Trie:
    """A vocabulary, ready to be searched."""

    root: Array
    """int32 (0x110000): node of a first character, or -1."""
    keys: Array
    """uint64 (2^n): (node + 1) << 21 | code point; 0 is empty."""
    nodes: Array
    """int32 (2^n): the node that the edge leads to."""
    piece: Array
    """int32 (nodes): id of the piece that ends here, or -1."""
    score: Array
    """float64 (nodes): its score."""
    unknown: float
    """Score of a character that is no piece."""


def build_trie(pieces: Sequence[str], scores: Sequence[float]) -> Trie:
    """The trie of `pieces`, whose ids are their positions; 0.5 s for 350,000 words."""
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    begin = np.cumsum(lengths) - lengths
    codes = np.frombuffer("".join(pieces).encode("utf-32-le"), np.uint32).astype(np.uint64)
    root = np.full(_CODE_POINTS, -1, np.int32)
    node = np.zeros(len(pieces), np.int64)
    some = np.flatnonzero(lengths > 0)
    first, inverse = np.unique(codes[begin[some]], return_inverse=True)
    root[first.astype(np.int64)] = np.arange(len(first))
    node[some] = inverse
    count, edges = len(first), []
    for depth in range(1, int(lengths.max(initial=0))):
        some = np.flatnonzero(lengths > depth)
        key = (node[some].astype(np.uint64) + np.uint64(1)) << np.uint64(21) | codes[begin[some] + depth]
        edge, inverse = np.unique(key, return_inverse=True)
        node[some] = count + inverse
        edges.append(edge)
        count += len(edge)
    piece, score = np.full(count, -1, np.int32), np.zeros(count)
    ends = lengths > 0
    piece[node[ends]] = np.flatnonzero(ends)
    score[node[ends]] = np.asarray(scores, np.float64)[ends]
    keys, nodes = _hash_table(np.concatenate(edges) if edges else np.empty(0, np.uint64), len(first))
    return Trie(root, keys, nodes, piece, score, min(scores) - _UNKNOWN_PENALTY)


def _hash_table(edges: Array, first_node: int) -> tuple[Array, Array]:
    """Keys and nodes by slot; linear probing, at most half full. Edge `k` leads to node `first_node + k`.

    All edges look for a slot at once; those that find theirs taken go on to the next one.
    """
    bits = max(10, int(2 * len(edges)).bit_length())
    keys, nodes = np.zeros(1 << bits, np.uint64), np.zeros(1 << bits, np.int32)
    slot = ((edges * _MULTIPLIER) >> np.uint64(64 - bits)).astype(np.int64)
    left = np.arange(len(edges))
    while len(left):
        free = left[keys[slot[left]] == 0]
        _, winners = np.unique(slot[free], return_index=True)
        won = free[winners]
        keys[slot[won]] = edges[won]
        nodes[slot[won]] = first_node + won
        left = left[keys[slot[left]] != edges[left]]
        slot[left] = (slot[left] + 1) & ((1 << bits) - 1)
    return keys, nodes


def segment(
    trie: Trie, text: Array, offsets: Array, byte0: int, bos: int = -1, eos: int = -1
) -> tuple[Array, Array, Array]:
    """Token ids of documents.

    Args:
        text: uint8, valid UTF-8 of the documents end to end.
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
    codes, best = np.empty(longest, np.int32), np.empty(longest, np.float64)
    came_from, came_by = np.empty(longest, np.int32), np.empty(longest, np.int32)
    used = _viterbi(
        text,
        np.ascontiguousarray(offsets, np.int64),
        trie.root,
        trie.keys,
        trie.nodes,
        np.uint64(65 - len(trie.keys).bit_length()),
        trie.piece,
        trie.score,
        trie.unknown,
        byte0,
        bos,
        eos,
        codes,
        best,
        came_from,
        came_by,
        ids,
        ids_offsets,
        characters,
    )
    return ids[:used], ids_offsets, characters


@compiled
def _viterbi(
    text: Array,
    offsets: Array,
    root: Array,
    keys: Array,
    nodes: Array,
    shift: np.uint64,
    piece: Array,
    score: Array,
    unknown: float,
    byte0: int,
    bos: int,
    eos: int,
    codes: Array,
    best: Array,
    came_from: Array,
    came_by: Array,
    ids: Array,
    ids_offsets: Array,
    characters: Array,
) -> int:
    mask = np.uint64(len(keys) - 1)
    used = 0
    for d in range(len(offsets) - 1):
        # UTF-8 to code points
        at, end, n, visible = offsets[d], offsets[d + 1], 0, 0
        while at < end:
            lead = np.int32(text[at])
            if lead < 0x80:
                c = lead
                at += 1
            elif lead < 0xE0:
                c = ((lead & 0x1F) << 6) | (np.int32(text[at + 1]) & 0x3F)
                at += 2
            elif lead < 0xF0:
                c = (
                    ((lead & 0x0F) << 12)
                    | ((np.int32(text[at + 1]) & 0x3F) << 6)
                    | (np.int32(text[at + 2]) & 0x3F)
                )
                at += 3
            else:
                c = (
                    ((lead & 0x07) << 18)
                    | ((np.int32(text[at + 1]) & 0x3F) << 12)
                    | ((np.int32(text[at + 2]) & 0x3F) << 6)
                    | (np.int32(text[at + 3]) & 0x3F)
                )
                at += 4
            codes[n] = c
            n += 1
            space = (  # what str.isspace() says
                c == 0x20
                or 0x09 <= c <= 0x0D
                or 0x1C <= c <= 0x1F
                or c == 0x85
                or c == 0xA0
                or c == 0x1680
                or 0x2000 <= c <= 0x200A
                or c == 0x2028
                or c == 0x2029
                or c == 0x202F
                or c == 0x205F
                or c == 0x3000
            )
            if not space:
                visible += 1
        characters[d] = visible
        # best[i]: score of the best way to write the first i characters
        best[0] = 0.0
        for i in range(1, n + 1):
            came_from[i] = -1
        for i in range(n):
            here = best[i]
            node = root[codes[i]]
            single = False
            j = i
            while node >= 0:
                j += 1
                if piece[node] >= 0:
                    single |= j == i + 1
                    total = score[node] + here
                    if came_from[j] < 0 or total > best[j]:
                        best[j], came_from[j], came_by[j] = total, i, piece[node]
                if j == n:
                    break
                key = ((np.uint64(node) + np.uint64(1)) << np.uint64(21)) | np.uint64(codes[j])
                slot = (key * np.uint64(0x9E3779B97F4A7C15)) >> shift
                while keys[slot] != key and keys[slot] != np.uint64(0):
                    slot = (slot + np.uint64(1)) & mask
                node = nodes[slot] if keys[slot] == key else np.int32(-1)
            if not single:
                total = unknown + here
                if came_from[i + 1] < 0 or total > best[i + 1]:
                    best[i + 1], came_from[i + 1], came_by[i + 1] = total, i, -1
        # Back along the best way: ids come out in reverse and are turned around.
        if bos >= 0:
            ids[used] = bos
            used += 1
        left = used
        i = n
        while i > 0:
            if came_by[i] >= 0:
                ids[used] = came_by[i]
                used += 1
            else:
                c = codes[came_from[i]]
                if c < 0x80:
                    ids[used] = byte0 + c
                    used += 1
                else:
                    ids[used] = byte0 + (0x80 | (c & 0x3F))
                    used += 1
                    if c < 0x800:
                        ids[used] = byte0 + (0xC0 | (c >> 6))
                    else:
                        ids[used] = byte0 + (0x80 | ((c >> 6) & 0x3F))
                        used += 1
                        if c < 0x10000:
                            ids[used] = byte0 + (0xE0 | (c >> 12))
                        else:
                            ids[used] = byte0 + (0x80 | ((c >> 12) & 0x3F))
                            used += 1
                            ids[used] = byte0 + (0xF0 | (c >> 18))
                    used += 1
            i = came_from[i]
        right = used - 1
        while left < right:
            ids[left], ids[right] = ids[right], ids[left]
            left += 1
            right -= 1
        if eos >= 0:
            ids[used] = eos
            used += 1
        ids_offsets[d + 1] = used
    return used
