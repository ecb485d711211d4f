"""A vocabulary in byte-level spelling: each UTF-8 byte is one printable character.

`byte_fallback` of a Unigram model is ignored by some readers of tokenizer.json (llama.cpp's UGM and
tokenizers.js, in 2026), which then write `<unk>` for a character without a piece. With a ByteLevel step
before the model such a character is spelled by pieces like any other. The ids are the same in both forms: a
piece is whole characters, and in UTF-8 none begins inside another. Only of two ways that cost the same the
forms may choose differently, as the bytes of such a character are added up one by one here. `tokenizers` is
slower with it (docs/explanation/tokenizer.md); our kernel reads both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BYTES = tuple(f"<0x{i:02X}>" for i in range(256))
"""The pieces of single bytes, as `byte_fallback` names them."""
BYTE_SCORE = -1000.0
"""Low enough that the literal text `<0x41>` is never written as a byte piece."""
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""Bytes that stand for themselves in GPT-2's table (bytes_to_unicode); the others go to U+0100 onwards."""


def _table() -> tuple[str, ...]:
    others = iter(range(0x100, 0x200))
    return tuple(chr(b) if b in _PRINTABLE else chr(next(others)) for b in range(256))


ALPHABET = _table()
"""The character of each byte."""
PRE_TOKENIZER = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
_VALUE = {character: byte for byte, character in enumerate(ALPHABET)}


def spelled(text: str) -> str:
    """`text` with each of its bytes as one character."""
    return "".join(ALPHABET[byte] for byte in text.encode())


def to_byte_level(pieces: Sequence[str], reserved: frozenset[str]) -> list[str]:
    """The pieces of a vocabulary in byte-level spelling; those in `reserved` stay as they are.

    The byte piece of a character that is a piece itself (`A`) keeps its name `<0x41>`, which no text matches.
    """
    plain = {spelled(piece) for piece in pieces if piece not in reserved and piece not in _BYTE_OF}
    found = []
    for piece in pieces:
        byte = _BYTE_OF.get(piece)
        if byte is not None:
            found.append(piece if ALPHABET[byte] in plain else ALPHABET[byte])
        else:
            found.append(piece if piece in reserved else spelled(piece))
    return found


def from_byte_level(pieces: Sequence[str]) -> list[str]:
    """The pieces as text again, with the 256 bytes under their usual names.

    Raises:
        ValueError: there are no 256 consecutive byte pieces.
    """
    first = next((i for i in range(len(pieces) - 255) if _are_bytes(pieces[i : i + 256])), None)
    if first is None:
        raise ValueError("its 256 byte pieces are not consecutive")
    return [*map(_text, pieces[:first]), *BYTES, *map(_text, pieces[first + 256 :])]


def _are_bytes(pieces: Sequence[str]) -> bool:
    return all(piece in pair for piece, pair in zip(pieces, zip(BYTES, ALPHABET, strict=True), strict=True))


def _text(piece: str) -> str:
    try:
        return bytes(map(_VALUE.__getitem__, piece)).decode()
    except (KeyError, UnicodeDecodeError):  # a special token, or a part of a character in a foreign file
        return piece


def is_byte_level(value: Any) -> bool:
    """Whether the content of a tokenizer.json has this form."""
    step = value.get("pre_tokenizer") or {}
    return all(step.get(name) == wanted for name, wanted in PRE_TOKENIZER.items() if name != "trim_offsets")


_BYTE_OF = {name: byte for byte, name in enumerate(BYTES)}
