"""A tokenizer that loses a character is found, whichever step loses it, and one that loses none passes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from yanmo.common.errors import DataError
from yanmo.formats.round_trip import PROBES, check_round_trip, open_tokenizer, probe_texts


def byte_level(normalizer=None, decoder=None):
    """A byte-level BPE such as Qwen's, without merges."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=256, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([""], trainer)
    made.decoder = decoder or decoders.ByteLevel()
    if normalizer is not None:
        made.normalizer = normalizer
    return made


def words(*, unk="<unk>", byte_fallback=False):
    """A Unigram of a few characters."""
    pieces = [("<unk>", -20.0), *((f"<0x{i:02X}>", -15.0) for i in range(256) if byte_fallback)]
    pieces += [(c, -5.0) for c in "春眠不觉晓，。\n"]
    made = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=byte_fallback))
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return made


REPLACE = normalizers.Replace
LOSSY = {
    "replace": byte_level(REPLACE("也", "")),
    "rare": byte_level(REPLACE("龘", "龙")),
    "strip": byte_level(normalizers.Strip()),
    "strip_left": byte_level(normalizers.Strip(right=False)),
    "lowercase": byte_level(normalizers.Lowercase()),
    "nfkc": byte_level(normalizers.NFKC()),
    "spaces": byte_level(REPLACE(Regex(" +"), " ")),
    "line_breaks": byte_level(REPLACE(Regex("\n+"), "\n")),
    "carriage_return": byte_level(REPLACE("\r\n", "\n")),
    "quotes": byte_level(REPLACE(Regex("[“”]"), '"')),
    "full_width": byte_level(REPLACE("，", ",")),
    "repeats": byte_level(REPLACE(Regex("(…)…+"), "…")),
    "bert": byte_level(normalizers.BertNormalizer(handle_chinese_chars=False)),
    "accents": byte_level(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
    "prepend": byte_level(normalizers.Prepend(" ")),
    "decoder_drops": byte_level(
        decoder=decoders.Sequence([decoders.ByteLevel(), decoders.Replace("也", "")])
    ),
    "decoder_strips": byte_level(
        decoder=decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    ),
    "decoder_missing": words(byte_fallback=True),
    "unk": words(),
}
LOSSY["decoder_missing"].decoder = decoders.Fuse()
KEEPS = {
    "byte_level": byte_level(),
    "nfc": byte_level(normalizers.NFC()),
    "byte_fallback": words(byte_fallback=True),
}


@pytest.mark.parametrize("name", LOSSY)
def test_a_tokenizer_that_loses_anything_common_is_found_by_the_built_in_text(name, tmp_path):
    LOSSY[name].save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match=r"its tokenizer loses text: .*character \d+: expected .* found "):
        check_round_trip(open_tokenizer(tmp_path / "tokenizer.json"), probe_texts(), "x")


@pytest.mark.parametrize("name", KEEPS)
def test_a_tokenizer_that_loses_nothing_passes(name, tmp_path):
    KEEPS[name].save(str(tmp_path / "tokenizer.json"))
    check_round_trip(open_tokenizer(tmp_path / "tokenizer.json"), probe_texts(), "x")


@settings(max_examples=300, deadline=None)
@given(
    st.text(
        st.one_of(st.sampled_from("也龘，,\n Aa…ﬁ"), st.characters(codec="utf-8")), min_size=1, max_size=40
    )
)
def test_a_text_is_refused_exactly_where_it_does_not_come_back(text):
    """Judged by what the normalizer of each tokenizer does to the text, which is all that these lose."""
    for made in (LOSSY["replace"], LOSSY["lowercase"], LOSSY["nfkc"], LOSSY["strip"], KEEPS["nfc"]):
        same = made.normalizer.normalize_str(text) == text
        try:
            check_round_trip(made, [("a text", text)], "x")
            assert same
        except DataError:
            assert not same


def test_the_name_of_a_byte_in_a_text_is_read_as_the_byte() -> None:
    with pytest.raises(DataError, match="its tokenizer loses text"):
        check_round_trip(KEEPS["byte_fallback"], [("a text", "<0x00>")], "x")


def test_the_built_in_text_holds_every_common_character_and_nfc_leaves_it_alone():
    everything = "".join(text for _, text in probe_texts())
    assert {chr(c) for c in range(0x4E00, 0x9FFF)} <= set(everything)
    assert {chr(c) for c in range(0x20, 0x7F)} | set("\n\t\r　，。！？；：“”‘’（）《》、·—…０Ａａ") <= set(
        everything
    )
    assert sum(ord(c) > 0x1FFFF for c in everything) > 600
    normalizer = normalizers.NFC()
    assert all(normalizer.normalize_str(text) == text for _, text in probe_texts())
    assert all(text in dict.fromkeys(t for _, t in probe_texts()) for text in PROBES)


def test_what_is_no_tokenizer_is_named(tmp_path):
    path = tmp_path / "tokenizer.json"
    KEEPS["byte_level"].save(str(path))
    for body in ("", "[]", "null", "{}", path.read_text(encoding="utf-8")[:2000], json.dumps({"model": 1})):
        path.write_text(body, encoding="utf-8")
        with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer that"):
            open_tokenizer(path)
