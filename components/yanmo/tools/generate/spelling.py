"""Text of tokens as they are written: never half a character."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yanmo.common.foreign import unguarded
from yanmo.model.generation.writing import Text
from yanmo.tokenize.byte_level import ALPHABET

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_VALUE = {character: byte for byte, character in enumerate(ALPHABET)}


class Spelling:
    """What each token of a tokenizer adds to a text, in bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._marks = {i for i, token in added.items() if token.special}
        self._plain = {i: token.content for i, token in added.items() if not token.special}
        self._bytes_of = self._by_kind()
        self._known: dict[int, bytes] = {}

    def _by_kind(self) -> Callable[[str], bytes] | None:
        """Return how a piece becomes bytes; None where the tokenizer joins pieces in a way of its own."""
        decoder = self._tokenizer.decoder
        kinds = _kinds(json.loads(decoder.__getstate__())) if decoder is not None else []
        if kinds == ["ByteLevel"]:
            return _from_byte_level
        return _from_byte_fallback if set(kinds) <= {"ByteFallback", "Fuse"} and kinds else None

    def reader(self) -> Callable[[int], str]:
        """A function that takes a text's tokens one by one and gives back what has become text."""
        if self._bytes_of is None:
            from tokenizers.decoders import DecodeStream

            stream, tokenizer = DecodeStream(skip_special_tokens=True), unguarded(self._tokenizer)
            return lambda token: stream.step(tokenizer, token) or ""
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        return lambda token: utf8.decode(self._spelled(token))

    def _spelled(self, token: int) -> bytes:
        if token not in self._known:
            self._known[token] = self._look_up(token)
        return self._known[token]

    def _look_up(self, token: int) -> bytes:
        piece = self._tokenizer.id_to_token(token)
        if piece is None or token in self._marks:  # a row of the embedding without a token says nothing
            return b""
        if token in self._plain:
            return self._plain[token].encode()
        assert self._bytes_of is not None
        return self._bytes_of(piece)


def _kinds(decoder: dict[str, Any]) -> list[str]:
    if decoder["type"] == "Sequence":
        return [kind for each in decoder["decoders"] for kind in _kinds(each)]
    return [decoder["type"]]


def _from_byte_fallback(piece: str) -> bytes:
    found = _BYTE.fullmatch(piece)
    return bytes([int(found[1], 16)]) if found else piece.encode()


def _from_byte_level(piece: str) -> bytes:
    try:
        return bytes(map(_VALUE.__getitem__, piece))
    except KeyError:  # no spelling of bytes
        return piece.encode()


class Streamed:
    """Tells the text of what is being written, piece by piece."""

    def __init__(self, written: Text, spelling: Spelling) -> None:
        self.written = written
        self.told = ""
        """All that was told so far."""
        self._read, self._next = spelling.reader(), 0

    def go_on(self) -> str:
        """Return what can be told after the tokens that were written since the last call."""
        text = "".join(map(self._read, self.written.new[self._next :]))
        self._next = len(self.written.new)
        self.told += text
        return text
