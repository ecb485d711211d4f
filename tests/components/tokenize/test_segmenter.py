import itertools
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common import jit
from yanmo.common.errors import DataError
from yanmo.tokenize import segmenter as segmenter_module
from yanmo.tokenize.byte_level import ALPHABET, BYTES
from yanmo.tokenize.segmenter import Segmenter, text_and_offsets

HOSTILE = [
    "",
    " ",
    "\n\n\n",
    "a\r\nb\tc\u3000d",
    "<|bos|>春<|eos|>眠<unk><|pad|><|tag_00|><|im_start|>user<|im_end|>",
    "<0x41><0x00>",
    "Ġ▁ĊÃ",
    "ä½łå¥½",
    "\u200b\u200d\u2028\u2029",
    "\u202eabc",
    "<|im_start",
    "a" * 1000,
    "\x00\x01\x7f\x80\x85\xa0",
    "\ufeff\ufffd\uffff",
    "👨‍👩‍👧‍👦🏳️‍🌈",
    "𠀀𪚥𰻞",
    "呵呵呵呵呵",
    "é e\u0301 ﬁ Ａ１",
    "\U0010ffff" * 50,
    "\U0002a6d6\U0010fffe" * 5000,  # an unknown character takes up to four ids
    "▁a ▂▃",
    "12345.678e-9",
    "Hello, World!",
    "清华大学科学院",
]


def hostile_strings(count: int, seed: int = 0) -> list[str]:
    """Random strings over every part of Unicode."""
    random_ = random.Random(seed)
    ranges = [
        (0, 0x7F),
        (0x80, 0x7FF),
        (0x4E00, 0x9FFF),
        (0x3000, 0x303F),
        (0x20000, 0x323AF),
        (0xE000, 0x10FFFF),
    ]
    strings = []
    for _ in range(count):
        pool = random_.sample(ranges, random_.randint(1, len(ranges)))
        codes = [random_.randint(*random_.choice(pool)) for _ in range(random_.randint(0, 40))]
        strings.append("".join(map(chr, codes)))
    return strings


def encoded(segmenter: Segmenter, texts: list[str], bos: int = -1, eos: int = -1) -> list[list[int]]:
    ids, offsets, _ = segmenter.encode(pa.array(texts, pa.string()), bos, eos)
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def reference(segmenter: Segmenter, texts: list[str]) -> list[list[int]]:
    return [e.ids for e in segmenter.reference.encode_batch_fast(texts, add_special_tokens=False)]


def test_kernel_gives_the_ids_of_tokenizers_on_real_text(segmenter, few):
    texts = [d["text"] for d in few]
    assert encoded(segmenter, texts) == reference(segmenter, texts)


@pytest.mark.long
def test_kernel_gives_the_ids_of_tokenizers_on_every_document_of_the_corpus(segmenter, corpus):
    texts = [d["text"] for d in corpus]
    assert encoded(segmenter, texts) == reference(segmenter, texts)


def test_kernel_gives_the_ids_of_tokenizers_on_hostile_strings_and_they_come_back(segmenter):
    texts = HOSTILE + hostile_strings(5000) + [a + b for a in HOSTILE for b in HOSTILE]
    ids = encoded(segmenter, texts)
    assert ids == reference(segmenter, texts)
    assert segmenter.reference.decode_batch(ids, skip_special_tokens=False) == texts


@settings(deadline=None, max_examples=100)
@given(
    words=st.lists(st.tuples(st.text("ab中国人", min_size=1, max_size=4), st.integers(-9, -1)), max_size=12),
    texts=st.lists(st.text("ab中国人x", max_size=12), max_size=5),
)
def test_kernel_follows_tokenizers_on_any_vocabulary_ties_included(words, texts):
    """Scores are small integers, so that many segmentations cost the same."""
    pieces = dict(words)
    names = ["<unk>", *BYTES, *pieces]
    small = Segmenter.of(names, [-50.0, *[-20.0] * 256, *map(float, pieces.values())], unk=0)
    assert encoded(small, texts) == reference(small, texts)


def test_bos_and_eos_stand_around_each_document(segmenter):
    plain = encoded(segmenter, ["春眠", "", "不觉晓"])
    assert encoded(segmenter, ["春眠", "", "不觉晓"], 0, 1) == [[0, *ids, 1] for ids in plain]


def test_visible_characters_are_counted_as_python_counts_them(segmenter):
    texts = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF and (c < 0x3100 or c % 97 == 0)]
    _, _, characters = segmenter.encode(pa.array(texts))
    assert characters.tolist() == [int(not t.isspace()) for t in texts]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_slice_of_a_column_is_encoded_as_the_texts_themselves(segmenter, kind):
    texts = ["春眠", "", "不觉晓𠀀", "处处", "闻啼鸟"]
    column = pa.array(texts, kind).slice(1, 3)
    ids, offsets, _ = segmenter.encode(column)
    assert [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)] == encoded(segmenter, texts[1:4])


def test_bytes_that_are_not_utf8_are_refused():
    offsets, data = pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"a\xf0")
    column = pa.Array.from_buffers(pa.string(), 1, [None, offsets, data])
    with pytest.raises(DataError, match="not valid UTF-8"):
        text_and_offsets(column)


def test_null_text_is_refused():
    with pytest.raises(DataError, match="1 document without text"):
        text_and_offsets(pa.array(["a", None]))


def test_ids_are_the_same_without_numba(segmenter, few, monkeypatch):
    column = pa.array([d["text"] for d in few[:1200]] + HOSTILE)
    fast = segmenter.encode(column, 0, 1)
    monkeypatch.setattr(segmenter_module, "has_numba", lambda: False)
    slow = segmenter.encode(column, 0, 1)
    for a, b in zip(fast, slow, strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)


def test_the_check_stops_at_an_id_that_differs(segmenter):
    (ids,) = encoded(segmenter, ["春眠不觉晓"])
    segmenter.judge("春眠不觉晓", ids)
    with pytest.raises(RuntimeError, match=r"differ from those of tokenizers in the text '春眠不觉晓'"):
        segmenter.judge("春眠不觉晓", [*ids[:-1], ids[-1] + 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v["model"].update(type="BPE"), "BPE"),
        (lambda v: v["model"].update(byte_fallback=False), "no byte fallback"),
        (lambda v: v.update(normalizer={"type": "NFC"}), "normalizer"),
        (lambda v: v.update(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer"),
        (lambda v: v["model"]["vocab"].pop(100), "byte pieces"),
    ],
)
def test_tokenizer_that_the_kernel_does_not_know_is_refused(tokenizer, tmp_path, change, message):
    value = json.loads(tokenizer.path("tokenizer.json").read_text(encoding="utf-8"))
    change(value)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        Segmenter.read(path)


def test_damaged_tokenizer_is_refused(tmp_path):
    for text in ("", "{", "[]", '{"model": 3}'):
        (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=r"tokenizer\.json"):
            Segmenter.read(tmp_path / "tokenizer.json")


def test_tokenizer_loads_in_transformers_without_custom_code(tokenizer):
    folder = tokenizer.path("tokenizer.json").parent
    loaded = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id, loaded.unk_token_id) == (
        0,
        1,
        2,
        3,
    )
    assert len(loaded) == 4096
    assert loaded.convert_tokens_to_ids(["<|tag_58|>", "user", "<|im_start|>"]) == [62, 64, 66]
    plain = [text for text in HOSTILE if "<|" not in text and "<unk>" not in text] + hostile_strings(3000, 1)
    for text in plain:
        ids = loaded(text, add_special_tokens=False)["input_ids"]
        assert loaded.decode(ids) == text
    assert [loaded(t, add_special_tokens=False)["input_ids"] for t in plain[:500]] == encoded(
        Segmenter.read(folder / "tokenizer.json"), plain[:500]
    )
    assert loaded("<|bos|>春<|eos|>")["input_ids"][0] == 0


def test_ways_that_are_as_good_are_chosen_between_as_tokenizers_does(tmp_path):
    """It reads -7.2497394536341755 as -7.249739453634176, so that 茫茫, 茫 was 茫, 茫茫 here."""
    random_ = random.Random(3)
    letters = [chr(0x4E00 + number) for number in range(400)]
    scores = [[piece, random_.uniform(-15, -5)] for letter in letters for piece in (letter, letter * 2)]
    model = {"type": "Unigram", "unk_id": 0, "byte_fallback": True}
    model["vocab"] = [*([name, -20.0] for name in BYTES), *scores]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}), encoding="utf-8")
    segmenter = Segmenter.read(tmp_path / "tokenizer.json")
    texts = ["".join(random_.choices(letters, k=9)) + letter * 3 for letter in letters]
    found = encoded(segmenter, texts)
    assert found == [segmenter.reference.encode(text).ids for text in texts]
    assert len({len(ids) for ids in found}) > 1


CHILD = """
import os, sys, numba, pyarrow as pa
from pathlib import Path
from yanmo.tokenize.segmenter import Segmenter
numba.njit(lambda x: x + 1)(1)  # loads what the interpreter's folder may hide from others
s = Segmenter.read(Path(sys.argv[1])); s.trie
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(s.encode(pa.array(["春眠不觉晓"]))[0].tolist())
"""


def closed_to_others(path: Path) -> bool:
    return any(not folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


@pytest.mark.process
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become a user who can write nowhere")
@pytest.mark.skipif(
    closed_to_others(Path(jit.__file__)) or closed_to_others(Path(np.__file__)),
    reason="the checkout or its environment lies where that user may not read (below /root, say)",
)
@pytest.mark.parametrize("writable_temporary", [True, False])
def test_kernel_runs_where_source_and_home_are_read_only(segmenter, tokenizer, tmp_path, writable_temporary):
    for folder in [tmp_path, *tmp_path.parents]:
        if not folder.stat().st_mode & 0o005:
            folder.chmod(folder.stat().st_mode | 0o055)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    temporary.chmod(0o777 if writable_temporary else 0o555)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "NUMBA_CACHE_DIR": str(temporary),  # as our images set it
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD, tokenizer.path("tokenizer.json")],
        env=env,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == encoded(segmenter, ["春眠不觉晓"])[0]
    assert any(temporary.rglob("*.nbi")) == writable_temporary


def test_byte_alphabet_is_that_of_the_byte_level_step():
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(ALPHABET) == sorted(ByteLevel.alphabet())
    text = "".join(map(chr, range(0x3000))) + "𠀀"
    step = ByteLevel(add_prefix_space=False, use_regex=False)
    assert "".join(piece for piece, _ in step.pre_tokenize_str(text)) == "".join(
        ALPHABET[byte] for byte in text.encode()
    )
