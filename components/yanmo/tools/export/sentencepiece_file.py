"""A Unigram tokenizer.json as a SentencePiece model, `tokenizer.model`, for llama.cpp's converter.

The converter reads a tokenizer of pieces from this file only (of a tokenizer.json it knows those of byte
pairs, by a list of their authors). The file is a protobuf of a few fields, written here without its library:
sentencepiece_model.proto of SentencePiece 0.2. Spaces are written as U+2581, as SentencePiece has them.

What reads it: SentencePiece itself cuts texts as tokenizers does. llama.cpp takes every such file for one of
byte pairs ("llama") and joins the best pair of neighbours again and again; docs/how-to/use-a-model.md says
how often that is another way to cut.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

_SPACE = "\u2581"
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
"""SentencePiece.Type of the proto."""
_UNIGRAM = 1
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


def sentencepiece_model(tokenizer: dict[str, Any], bos: int, eos: int, pad: int) -> bytes | None:
    """The bytes of the file; None for a tokenizer that such a file cannot hold.

    Args:
        tokenizer: the contents of tokenizer.json.
    """
    model = tokenizer.get("model") or {}
    has_steps = any(tokenizer.get(name) for name in ("normalizer", "pre_tokenizer"))
    if model.get("type") != "Unigram" or not model.get("byte_fallback") or has_steps:
        return None
    pieces: list[tuple[str, float]] = [(piece, float(score)) for piece, score in model["vocab"]]
    unk = model.get("unk_id")
    marks = {added["id"] for added in tokenizer.get("added_tokens", []) if added.get("special")}
    if len({piece.replace(" ", _SPACE) for piece, _ in pieces}) < len(pieces) or not isinstance(unk, int):
        return None
    written = b"".join(
        _field(1, _piece(piece, score, _kind(i, piece, unk, marks)))
        for i, (piece, score) in enumerate(pieces)
    )
    trainer = {3: _UNIGRAM, 4: len(pieces), 35: 1, 40: unk, 41: bos, 42: eos, 43: pad}
    names = {45: pieces[unk][0], 46: pieces[bos][0], 47: pieces[eos][0], 48: pieces[pad][0]}
    spec = b"".join(_number(tag, value) for tag, value in trainer.items())
    spec += b"".join(_field(tag, text.encode()) for tag, text in names.items())
    as_it_is = _field(1, b"identity") + b"".join(_number(tag, on) for tag, on in ((3, 0), (4, 0), (5, 1)))
    return written + _field(2, spec) + _field(3, as_it_is)


def _kind(i: int, piece: str, unk: int, marks: set[int]) -> int:
    if i == unk:
        return _UNKNOWN
    if i in marks:
        return _CONTROL
    return _BYTE if _BYTE_PIECE.fullmatch(piece) else _NORMAL


def _piece(piece: str, score: float, kind: int) -> bytes:
    text = piece if kind == _BYTE else piece.replace(" ", _SPACE)
    return _field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind)


def _field(tag: int, value: bytes) -> bytes:
    return _varint(tag << 3 | 2) + _varint(len(value)) + value


def _number(tag: int, value: int) -> bytes:
    return _varint(tag << 3) + _varint(value)


def _varint(value: int) -> bytes:
    return bytes(_groups(value))


def _groups(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value
