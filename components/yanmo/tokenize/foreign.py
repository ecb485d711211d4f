"""Tokenizers that Yanmo did not make: any `tokenizer.json`, encoded by `tokenizers` itself.

The compiled kernel supports only plain Unigram models, so these are 10 to 30 times slower; the cache has the
same format. A text must come back from its ids unchanged: with a tokenizer that folds or drops characters,
bits per character would be those of another text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from yanmo.common.errors import DataError
from yanmo.common.given_file import MIB, given_json, kind_of_json
from yanmo.formats.round_trip import ADVICE, PROBES, difference, open_tokenizer
from yanmo.tokenize.byte_level import ALPHABET, BYTES
from yanmo.tokenize.segmenter import Array, Segmenter

MOST_TOKENIZER_BYTES = 200 * MIB
"""Of a tokenizer.json; that of the largest vocabularies has 35."""
_BYTE_VALUE = {character: byte for byte, character in enumerate(ALPHABET)}


def no_tokenizer(path: Path, value: Any) -> DataError:
    """Return the error for JSON that is not that of a tokenizer."""
    found = (
        f"an object with {', '.join(map(str, list(value)[:5])) or 'nothing'}"
        if isinstance(value, dict)
        else ""
    )
    return DataError(
        f"{path}: expected a tokenizer.json, with a model that has a type and a vocab; found "
        f"{found or kind_of_json(value)}: copy it again"
    )


def read_segmenter(path: Path) -> Segmenter:
    """Return the segmenter of any `tokenizer.json`: the kernel's where it can be, else a `ForeignSegmenter`.

    Raises:
        DataError: it is damaged.
    """
    value = given_json(path, "a tokenizer.json", most_bytes=MOST_TOKENIZER_BYTES)
    try:
        plain = value["model"]["type"] == "Unigram" and value.get("normalizer") is None
        plain &= value.get("pre_tokenizer") is None
    except (KeyError, TypeError, AttributeError) as error:
        raise no_tokenizer(path, value) from error
    return Segmenter.read(path) if plain else ForeignSegmenter.read(path)


@dataclass(frozen=True)
class ForeignSegmenter(Segmenter):
    """A tokenizer of any kind, behind the interface of our own."""

    @classmethod
    def read(cls, path: Path) -> ForeignSegmenter:
        """Return the segmenter of a `tokenizer.json`.

        Raises:
            DataError: `tokenizers` cannot read it, or it does not give texts back.
        """
        names = open_tokenizer(path).get_vocab(with_added_tokens=True)
        pieces = [""] * (max(names.values(), default=-1) + 1)
        for name, place in names.items():
            pieces[place] = name
        found = cls(tuple(pieces), (), 0, len(pieces), path)
        found.check_texts(PROBES)
        return found

    @functools.cached_property
    def _characters(self) -> tuple[Array, Array]:
        """For each id, how many characters begin in it, and whether it begins inside one."""
        byte_level = '"ByteLevel"' in self.reference.to_str()
        special = {token.content for token in self.reference.get_added_tokens_decoder().values()}
        widths, inside = np.zeros(self.vocab_size, np.int32), np.zeros(self.vocab_size, bool)
        for place, piece in enumerate(self.pieces):
            if byte_level and piece not in special:
                data = bytes(_BYTE_VALUE.get(c, 0x20) for c in piece)
            elif piece in _BYTES:
                data = bytes([_BYTES[piece]])
            else:
                data = piece.encode()
            widths[place] = sum(byte & 0xC0 != 0x80 for byte in data)
            inside[place] = bool(data) and data[0] & 0xC0 == 0x80
        return widths, inside

    @functools.cached_property
    def widths(self) -> Array:
        return self._characters[0]

    @functools.cached_property
    def continues(self) -> Array:
        return self._characters[1]

    def encode(self, column: pa.Array, bos: int = -1, eos: int = -1) -> tuple[Array, Array, Array]:
        return self._encode_slowly(column, bos, eos)

    def judge(self, text: str, ids: list[int]) -> None:
        """Check that a text comes back from its ids.

        Raises:
            DataError: it does not.
        """
        back = self.reference.decode(ids, skip_special_tokens=False)
        if back != text:
            raise DataError(f"{self.path}: its tokenizer loses text: {difference(text, back)}; {ADVICE}")
        counted = int(self.widths[ids].sum())
        if counted != len(text):
            raise DataError(
                f"{self.path}: cannot tell which characters its pieces hold ({counted} counted in "
                f"{len(text)}: {text[:20]!r}); use a byte-level tokenizer or let tokenize make one"
            )

    def check_texts(self, texts: Iterable[str]) -> None:
        """`judge` each of `texts` after encoding it."""
        for text in texts:
            self.judge(text, self.reference.encode(text, add_special_tokens=False).ids)


_BYTES = {name: byte for byte, name in enumerate(BYTES)}


def added_tokens(value: dict[str, Any]) -> dict[str, int]:
    """Token -> id of the tokens that a tokenizer.json lists outside of its model."""
    return {token["content"]: int(token["id"]) for token in value.get("added_tokens") or ()}
