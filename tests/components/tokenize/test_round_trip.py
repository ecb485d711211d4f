import itertools
import json
import random

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from yanmo.tokenize.byte_level import ALPHABET, from_byte_level, spelled, to_byte_level
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.tokenizer_files import tokenizer_json
from yanmo.tokenize.vocabulary import BYTES, RESERVED

TRAPS = [
    *(
        "",
        " ",
        "\n\n\n",
        "a\r\nb\tc\u3000d",
        "\x00",
        "\x00\x01\x7f\x80\x85\xa0",
        "\ufeff\ufffd\uffff",
        "\U0010ffff",
    ),
    *("<|bos|>春<|eos|>眠<unk><|pad|><|tag_00|><|im_start|>user<|im_end|>", "<0x41><0x00>", "Ġ▁ĊÃ", "ä½łå¥½"),
    *(
        "👨‍👩‍👧‍👦🏳️‍🌈",
        "𠀀𪚥𰻞",
        "呵呵呵呵呵",
        "é e\u0301 ﬁ Ａ１",
        "▁a ▂▃",
        "12345.678e-9",
        "系统system助手assistant",
    ),
    *("a" * 1000, "\u200b\u200d\u2028\u2029", "ｱｲｳ ㍿ ﷽", "\u202eabc", "<|im_start", "\\u4e00\\n", "'\"&lt;"),
]
_RANGES = (
    (0, 0x7F),
    (0x80, 0x7FF),
    (0x4E00, 0x9FFF),
    (0x3000, 0x303F),
    (0x20000, 0x323AF),
    (0xE000, 0x10FFFF),
)


def hostile(count: int, seed: int) -> list[str]:
    """Strings over every part of Unicode, and traps glued to each other and to noise."""
    random_, draw = random.Random(seed), np.random.default_rng(seed)
    found = []
    while len(found) < count:
        ranges = [_RANGES[i] for i in draw.permutation(len(_RANGES))[: draw.integers(1, len(_RANGES) + 1)]]
        which = draw.integers(0, len(ranges), 640)
        low, high = np.array(ranges)[which].T
        noise = (low + (draw.random(640) * (high - low + 1)).astype(int)).astype("<u4")
        text = noise.tobytes().decode("utf-32-le")
        cuts = np.sort(draw.integers(0, 641, 30)).tolist()
        found += [text[a:b] for a, b in itertools.pairwise(cuts)]
        found += [random_.choice(TRAPS) + random_.choice(found[-29:]) + random_.choice(TRAPS)]
    return found[:count]


@pytest.fixture(scope="module")
def byte_level(vocabulary, tmp_path_factory) -> Segmenter:
    """The vocabulary of `segmenter` in the other form."""
    path = tmp_path_factory.mktemp("byte_level") / "tokenizer.json"
    path.write_text(tokenizer_json(vocabulary, byte_level=True), encoding="utf-8")
    return Segmenter.read(path)


def ids_of(segmenter: Segmenter, texts: list[str]) -> list[list[int]]:
    ids, offsets, _ = segmenter.encode(pa.array(texts))
    values = ids.tolist()
    return [values[a:b] for a, b in itertools.pairwise(offsets.tolist())]


def theirs(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


@pytest.mark.long
def test_hundred_thousand_hostile_strings_survive_the_round_trip(segmenter):
    texts = TRAPS + hostile(100_000 - len(TRAPS), seed=1)
    ids = ids_of(segmenter, texts)
    assert ids == theirs(segmenter.reference, texts)
    back = segmenter.reference.decode_batch(ids, skip_special_tokens=False)
    assert sum(a != b for a, b in zip(texts, back, strict=True)) == 0


def test_byte_level_form_gives_the_same_ids_and_the_text_back(segmenter, byte_level, few):
    texts = TRAPS + hostile(10_000, seed=2) + [d["text"] for d in few]
    ids = ids_of(segmenter, texts)
    assert theirs(byte_level.reference, texts) == ids == ids_of(byte_level, texts)
    assert byte_level.reference.decode_batch(ids, skip_special_tokens=False) == texts


def test_byte_level_form_is_the_same_vocabulary(segmenter, byte_level):
    assert byte_level.pieces == segmenter.pieces and byte_level.scores == segmenter.scores
    assert (byte_level.unk, byte_level.byte0) == (segmenter.unk, segmenter.byte0)


def test_byte_level_form_needs_no_byte_fallback(byte_level):
    value = json.loads(byte_level.path.read_text(encoding="utf-8"))
    assert value["model"]["byte_fallback"] is False
    assert value["pre_tokenizer"]["type"] == value["decoder"]["type"] == "ByteLevel"
    assert [token["content"] for token in value["added_tokens"]][:4] == list(RESERVED[:4])


def test_byte_level_form_loads_in_transformers(byte_level, tokenizer, tmp_path):
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).write_bytes(tokenizer.path(name).read_bytes())
    (tmp_path / "tokenizer.json").write_bytes(byte_level.path.read_bytes())
    loaded = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    for text in ("春眠不觉晓 Hello 👨‍👩‍👧‍👦 .", "𠀀\r\n\t\u3000a  b", "\x00\x7f\ufeff"):
        ids = loaded(text, add_special_tokens=False)["input_ids"]
        assert ids == ids_of(byte_level, [text])[0]
        assert loaded.decode(ids) == text


def test_byte_alphabet_is_that_of_the_byte_level_step():
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(ALPHABET) == sorted(ByteLevel.alphabet())
    text = "".join(map(chr, range(0x3000))) + "𠀀"
    step = ByteLevel(add_prefix_space=False, use_regex=False)
    assert "".join(piece for piece, _ in step.pre_tokenize_str(text)) == spelled(text)


def test_byte_that_is_a_piece_of_its_own_keeps_its_name():
    pieces = ["<unk>", *BYTES, "A", "中国", "é", "\n"]
    level = to_byte_level(pieces, frozenset(["<unk>"]))
    assert level[1 + 0x41] == "<0x41>" and level[1 + 0x42] == "B" and level[1 + 0x0A] == "<0x0A>"
    assert level[257:] == ["A", "ä¸ŃåĽ½", "Ã©", "Ċ"]
    assert len(set(level)) == len(level)
    assert from_byte_level(level) == pieces


def test_byte_level_vocabulary_without_its_bytes_is_refused():
    with pytest.raises(ValueError, match="256 byte pieces"):
        from_byte_level(["a"] * 300)
