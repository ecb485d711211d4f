"""What a tokenizer can write of verse: the tokens that are whole Han characters and marks, as arrays.

Characters without a token of their own are spelled by several (bytes); each counts as one piece that is
written over several steps. Other tokens are never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from yanmo.chinese.pingshui import known_characters
from yanmo.verse.steps import Demand, is_han

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Bools = npt.NDArray[np.bool_]
MARKS = "，；？！。\n"
_HALF = "\ufffd"


class Pieces:
    """N pieces of a tokenizer, V tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        size = tokenizer.get_vocab_size()
        self.marks = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        # Behind another token: some tokenizers leave a space at the beginning of a text away.
        comma = tokenizer.encode("，", add_special_tokens=False).ids
        first = comma if len(comma) == 1 else []
        texts = tokenizer.decode_batch([[*first, i] for i in range(size)], skip_special_tokens=False)
        begin = tokenizer.decode(first, skip_special_tokens=False)
        self.texts = [text.removeprefix(begin) for text in texts]
        """Of each token; with a replacement character where it is a part of a character."""
        whole = {c for text in self.texts for c in text if len(text) == 1}
        spelled = self._spellings(tokenizer, [c for c in [*known_characters(), *MARKS] if c not in whole])
        written = [
            (text, (i,))
            for i, text in enumerate(self.texts)
            if text and i not in self.marks and all(is_han(c) or c in MARKS for c in text)
        ]
        rows = [*written, *((c, ids) for c, ids in spelled.items())]
        self.spelled = {ids: c for c, ids in spelled.items()}
        """Token ids -> the character that they spell."""
        self._beginnings = {ids[:n] for ids in self.spelled for n in range(1, len(ids))}
        self.characters = sorted({c for text, _ in rows for c in text})
        self.longest = max((len(text) for text, _ in rows), default=1)
        self.first = np.array([ids[0] for _, ids in rows], dtype=np.int64)
        """(N,): the first token of each piece."""
        self.ids = [ids for _, ids in rows]
        index = {c: i for i, c in enumerate(self.characters)}
        none = len(self.characters)
        padded = [[index[c] for c in text] + [none] * (self.longest - len(text)) for text, _ in rows]
        self._tables: dict[Demand, Bools] = {}
        self.at = np.array(padded, dtype=np.int32).reshape(len(rows), self.longest).T.copy()
        """(longest, N): index of each character; `none` behind the last one of a piece."""
        alone = self.at[1] == none if self.longest > 1 else np.ones(len(rows), dtype=np.bool_)
        self.single = {self.characters[i] for i in self.at[0][alone]}
        """Characters that are a piece."""

    def _spellings(self, tokenizer: Tokenizer, characters: Sequence[str]) -> dict[str, tuple[int, ...]]:
        found = {}
        for c, encoded in zip(
            characters, tokenizer.encode_batch(list(characters), add_special_tokens=False), strict=True
        ):
            is_spelled = len(encoded.ids) > 1 and all(_HALF in self.texts[i] for i in encoded.ids)
            if is_spelled and tokenizer.decode(encoded.ids) == c:
                found[c] = tuple(encoded.ids)
        return found

    def goes_on(self, ids: tuple[int, ...]) -> bool:
        """Return whether tokens are a part of a character's spelling, from its beginning."""
        return ids in self._beginnings

    def fitting(self, demands: Iterable[tuple[Demand, ...]]) -> Bools:
        """(N,): the pieces whose characters meet one of these sequences, and that end with it or before."""
        found = np.zeros(len(self.first), dtype=np.bool_)
        for each in demands:
            fits = self.at[len(each)] == len(self.characters) if len(each) < self.longest else True
            for at, demand in zip(self.at, each, strict=False):
                fits = fits & self._table(demand)[at]
            found |= fits
        return found

    def holding(self, characters: Iterable[str], place: int) -> Bools:
        """(N,): the pieces with one of the characters in that place."""
        index = [i for i, c in enumerate(self.characters) if c in characters]
        return np.isin(self.at[place], index)

    def tokens(self, fitting: Bools, begun: tuple[int, ...]) -> Bools:
        """(V,): the tokens that begin these pieces, or go on with those whose first tokens are written."""
        found = np.zeros(len(self.texts), dtype=np.bool_)
        if not begun:
            found[self.first[fitting]] = True
            return found
        pieces = (self.ids[i] for i in np.flatnonzero(fitting & (self.first == begun[0])))
        found[[ids[len(begun)] for ids in pieces if ids[: len(begun)] == begun]] = True
        return found

    def _table(self, demand: Demand) -> Bools:
        """(characters + 1,): which of them meet it; the last one is no character, and meets all."""
        if demand not in self._tables:
            met = [*map(demand.is_met, self.characters), True]
            self._tables[demand] = np.array(met, dtype=np.bool_)
        return self._tables[demand]
