"""tokenizer.model cuts texts as tokenizer.json does, in SentencePiece."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from saying import tokenizer_text
from tokenizers import Tokenizer

from yanmo.tools.export.sentencepiece_file import sentencepiece_model

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["春眠不觉晓，处处闻啼鸟。", "夜 来\n风雨声", "abc 𠀀", " 风  ", ""]


def test_sentencepiece_cuts_texts_alike_and_gives_them_back(tmp_path: Path):
    sentencepiece = pytest.importorskip("sentencepiece")
    text = tokenizer_text()
    data = sentencepiece_model(json.loads(text), 0, 1, 2)
    assert data is not None
    (tmp_path / "tokenizer.model").write_bytes(data)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    ours = Tokenizer.from_str(text)
    assert (theirs.bos_id(), theirs.eos_id(), theirs.pad_id()) == (0, 1, 2)
    assert theirs.get_piece_size() == ours.get_vocab_size()
    for each in TEXTS:
        ids = theirs.encode(each)
        assert ids == ours.encode(each, add_special_tokens=False).ids, each
        assert theirs.decode(ids) == each
    assert theirs.is_control(0) and theirs.is_unknown(3)
    assert theirs.is_byte(ours.token_to_id("<0x41>"))


def test_a_text_that_spells_a_byte_is_that_text_to_sentencepiece(tmp_path: Path):
    """tokenizers takes `<0x41>` in a text for the byte, A; nobody writes so, and SentencePiece is right."""
    sentencepiece = pytest.importorskip("sentencepiece")
    data = sentencepiece_model(json.loads(tokenizer_text()), 0, 1, 2)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    assert theirs.decode(theirs.encode("<0x41>")) == "<0x41>"


def test_what_such_a_file_cannot_hold_has_none() -> None:
    assert sentencepiece_model({"model": {"type": "BPE", "vocab": {}}}, 0, 1, 2) is None
    unigram = json.loads(tokenizer_text())
    unigram["model"]["vocab"][-1][0] = "\u2581"  # beside the space, which is written so
    assert sentencepiece_model(unigram, 0, 1, 2) is None
