"""Tokens become text as they come: never half a character, nothing lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saying import tokenizer_text
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from yanmo.formats.round_trip import open_tokenizer
from yanmo.model.generation.writing import LENGTH, Text
from yanmo.tools.generate.spelling import Spelling, Streamed

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def byte_level_of_qwen() -> Tokenizer:
    """Byte-level BPE without merges: a token is a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_end|>"])
    return tokenizer


TOKENIZERS = {
    "byte fallback": Tokenizer.from_str(tokenizer_text()),
    "qwen": byte_level_of_qwen(),
}


def streamed(name: str, ids: list[int]) -> tuple[Streamed, list[str]]:
    """What is told of tokens that come one by one."""
    text = Text([0], lambda step: 0.0, frozenset(), 99)
    found, told = Streamed(text, Spelling(TOKENIZERS[name])), []
    for i, token in enumerate(ids):
        text.new.append(token)
        if i == len(ids) - 1:
            text.finish = LENGTH
        told.append(found.go_on())
    return found, told


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS)
def test_a_text_is_told_whole_whatever_its_tokens(name, text):
    tokenizer = TOKENIZERS[name]
    tokenizer.encode_special_tokens = True
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    found, told = streamed(name, ids)
    assert "".join(told) == found.told == text == tokenizer.decode(ids, skip_special_tokens=False)
    assert all("\ufffd" not in piece or "\ufffd" in text for piece in told)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_bytes_that_are_no_text_do_not_stop_what_follows(name, data):
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size() - 1), max_size=20))
    ids += tokenizer.encode("abc", add_special_tokens=False).ids
    assert "".join(streamed(name, ids)[1]).endswith("abc")


def test_a_half_character_at_the_end_is_not_told():
    ids = [TOKENIZERS["byte fallback"].token_to_id(f"<0x{b:02X}>") for b in "龘龘".encode()[:-1]]
    assert streamed("byte fallback", ids)[1] == ["", "", "龘", "", ""]


def test_marks_are_not_told_and_a_row_without_a_token_says_nothing():
    tokenizer = TOKENIZERS["byte fallback"]
    ids = [tokenizer.token_to_id(n) for n in ("<|bos|>", "<|im_start|>", "春", "<|tag_03|>", "<|eos|>")]
    assert streamed("byte fallback", [*ids, 100_000])[0].told == "春"


def test_a_tokenizer_that_joins_pieces_in_its_own_way_is_told_too(tmp_path):
    tokenizer = Tokenizer(
        models.Unigram([("<unk>", 0.0), ("▁春", -1.0), ("眠", -1.0), ("▁a", -1.0)], unk_id=0)
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for opened in (tokenizer, open_tokenizer(tmp_path / "tokenizer.json")):
        read = Spelling(opened).reader()
        assert "".join(read(i) for i in (1, 2, 3)) == tokenizer.decode([1, 2, 3])
