"""Pieces of Latin letters, marks and blanks, learned from the text: indentation, `----`, `](https://`.

A run stands between Han characters and digits and holds one word at most, with the marks and blanks around
it; a line break ends it. So no piece touches a Han character, and jieba's boundaries stay what they are.

As in SentencePiece's Unigram all frequent substrings are pieces at first, the runs are segmented again and
again, and the least useful go. Useful is what saves tokens: each time it is used, as many as its best two
parts have, but one. That is counted for characters and words too, so ids go where they shorten the text most.
Here the best path alone is counted, by the kernel: 5 CPU-seconds for 8 million characters. BPE was not taken,
as many of its ids are only steps on the way to longer ones.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from yanmo.tokenize.byte_level import BYTE_SCORE, BYTES
from yanmo.tokenize.segmenter import Segmenter

_HAN = "\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER, _MARK = rf"[^\W\d_{_HAN}]", r"(?:[^\w\r\n]|_)"
_MARKS = rf"{_MARK}{{1,16}}[\r\n]{{0,4}}"
RUN = re.compile(rf"{_MARK}{{0,16}}{_LETTER}{{1,20}}(?:{_MARKS})?|{_MARKS}|[\r\n]{{1,4}}")
_WORD = re.compile(f"{_LETTER}+")
_LONGEST = 16
"""Characters of a piece, as of jieba's longest word."""
_LEAST = 20
"""Times that a piece is in the text: an id seen less often is hardly trained."""
_MOST_RUNS, _MOST_SEEDS = 100_000, 65_536
"""Different runs to learn from, the most frequent, and pieces to begin with."""


class Learned(NamedTuple):
    """One piece."""

    score: float
    saved: float
    """Tokens that it saves in the text."""


def learn(
    runs: Counter[str], taken: Container[str], rivals: Sequence[float], room: int, words: int, lowest: float
) -> dict[str, Learned]:
    """Return the pieces that save more tokens than rivals in whose place they come, and the runs' characters.

    Args:
        runs: of the text, with their counts.
        taken: pieces not to be learned.
        rivals: tokens that characters and words save.
        room: pieces to choose in all.
        words: words of the text: a piece's score is the logarithm of its share in them, or that of `lowest`.
    """
    known = sorted((run for run in runs if len(run) > 1), key=lambda run: (-runs[run], run))[:_MOST_RUNS]
    number, column = np.array([runs[run] for run in known]), pa.array(known, pa.string())
    alone = dict.fromkeys(sorted(set("".join(known))), 1.0)
    use = {piece: n for piece, n in _seeds(known, runs).items() if piece not in taken}
    while use:
        pieces = sorted(use)
        scores = [math.log(max(n / words, lowest)) for n in (*alone.values(), *map(use.__getitem__, pieces))]
        segmenter = Segmenter.of([*BYTES, *alone, *pieces], [*[BYTE_SCORE] * 256, *scores])
        ids, offsets, _ = segmenter.encode(column)
        every = np.bincount(ids, np.repeat(number, np.diff(offsets)), segmenter.vocab_size)[256:]
        alone, used = dict(zip(alone, every.tolist(), strict=False)), every[len(alone) :]
        saved = used * (_tokens_without(segmenter, pieces) - 1)
        least = np.sort(np.concatenate([[0.0] * room, rivals, saved]))[-room]
        wins = int(np.count_nonzero((saved >= least) & (saved > 0)))
        if wins == len(pieces):
            known = [*alone, *pieces]
            return dict(zip(known, map(Learned, scores, [0.0] * len(alone) + saved.tolist()), strict=True))
        kept = np.argsort(-saved, kind="stable")[: max(wins, 3 * len(pieces) // 4)]
        use = {pieces[i]: float(used[i]) for i in kept.tolist() if used[i]}
    return {}


def _seeds(known: Sequence[str], runs: Counter[str]) -> dict[str, float]:
    """Frequent substrings of the runs, and how often they are there; what begins inside a word ends in it."""
    found: Counter[str] = Counter()
    for run in known:
        word = _WORD.search(run)
        begin, end = word.span() if word else (0, 0)
        for i in range(len(run) - 1):
            last = end if begin < i < end else len(run)
            for j in range(i + 2, min(last, i + _LONGEST) + 1):
                found[run[i:j]] += runs[run]
    frequent = sorted((-n * (len(piece) - 1), piece) for piece, n in found.items() if n >= _LEAST)
    return {piece: float(found[piece]) for _, piece in frequent[:_MOST_SEEDS]}


def _tokens_without(segmenter: Segmenter, pieces: Sequence[str]) -> np.ndarray[Any, np.dtype[Any]]:
    """For each piece, the tokens of its best two parts."""
    cuts = [[(piece[:i], piece[i:]) for i in range(1, len(piece))] for piece in pieces]
    parts = sorted({part for of_piece in cuts for cut in of_piece for part in cut})
    lengths = np.diff(segmenter.encode(pa.array(parts, pa.string()))[1])
    tokens = dict(zip(parts, lengths.tolist(), strict=True))
    return np.array([min(tokens[a] + tokens[b] for a, b in of_piece) for of_piece in cuts])
