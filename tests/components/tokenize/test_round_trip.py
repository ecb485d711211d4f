import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from yanmo.tokenize.byte_level import ALPHABET
from yanmo.tokenize.segmenter import Segmenter

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


def test_texts_and_hostile_strings_survive_it(segmenter, few):
    texts = TRAPS + hostile(10_000, seed=2) + [d["text"] for d in few]
    ids = ids_of(segmenter, texts)
    assert theirs(segmenter.reference, texts) == ids
    assert segmenter.reference.decode_batch(ids, skip_special_tokens=False) == texts


def test_byte_alphabet_is_that_of_the_byte_level_step():
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(ALPHABET) == sorted(ByteLevel.alphabet())
    text = "".join(map(chr, range(0x3000))) + "𠀀"
    step = ByteLevel(add_prefix_space=False, use_regex=False)
    assert "".join(piece for piece, _ in step.pre_tokenize_str(text)) == "".join(
        ALPHABET[byte] for byte in text.encode()
    )
