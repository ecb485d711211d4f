import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from selection import few as few_of
from tokenizers import Tokenizer

from yanmo.tokenize.jieba_agreement import agreement, sentences_of
from yanmo.tokenize.learned_pieces import RUN, learn
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.tokenizer_files import tokenizer_json
from yanmo.tokenize.vocabulary import RESERVED, ROLES, Counts, choose

SETTINGS = {"size": 4096, "min_character_count": 3, "character_share": 0.7, "dictionary_weight": 0.01}
PAGE = """## 所有权 {n}

使用 `String::from` 函数，见 [文档](https://doc.rust-lang.org/std/string/)。

```rust
fn main() {{
        let s = String::from("hello");
        let user = system.user("{n}");
}}
```

----------

"""
CODE = "".join(PAGE.format(n=n) for n in range(60))


def counted(texts, words) -> Counts:
    found = Counts()
    found.add(pa.record_batch({"text": texts, "genre": ["文档"] * len(texts)}), words)
    return found


@pytest.fixture(scope="module")
def pages(few) -> list[str]:
    return [*(d["text"] for d in few[:500]), CODE]


@pytest.fixture(scope="module")
def mixed(pages, words, lexicon):
    return choose(counted(pages, words), lexicon, words, **SETTINGS)


@pytest.fixture(scope="module")
def ours(mixed, tmp_path_factory) -> Segmenter:
    path = tmp_path_factory.mktemp("mixed") / "tokenizer.json"
    path.write_text(tokenizer_json(mixed), encoding="utf-8")
    return Segmenter.read(path)


def written(segmenter: Segmenter, text: str) -> list[str]:
    return [segmenter.pieces[i] for i in segmenter.encode(pa.array([text]))[0].tolist()]


@pytest.fixture(scope="module")
def before(pages, words, lexicon) -> Segmenter:
    """The same text without its runs."""
    without = counted(pages, words)
    without.runs.clear()
    made = choose(without, lexicon, words, **SETTINGS)
    return Segmenter.of(made.pieces, made.scores, 3)


def test_indentation_marks_and_words_of_code_are_few_tokens(ours, before):
    assert len(written(ours, "----------\n\n")) == 1
    assert written(ours, "        let s")[0] == "        let "
    page = PAGE.format(n=61)
    assert len(written(ours, page)) < 0.4 * len(written(before, page))


def test_pieces_hold_no_han_no_digit_and_nothing_after_a_line_break(mixed, lexicon):
    learned = [p for p in mixed.pieces[324:] if len(p) > 1 and p not in lexicon.frequency]
    assert len(learned) > 20
    assert not [p for p in learned if re.search(r"[\d㐀-鿿]|[\r\n][^\r\n]", p)]


def test_a_role_stays_one_token(ours):
    for role in ROLES:
        assert written(ours, f"{role}\n文") == [role, "\n", "文"]


def test_boundaries_of_han_are_as_good_as_without_code(ours, before, pages):
    sentences = sentences_of(pages[::5], 20, 2000)
    kept = agreement(before, sentences)["boundary_recall"]
    assert agreement(ours, sentences)["boundary_recall"] > kept - 0.0005


def test_text_with_hardly_a_letter_keeps_its_vocabulary(few, words, lexicon):
    texts = [d["text"] for d in few[:500] if not re.search("[A-Za-z]", d["text"])]
    plain, stray = counted(texts, words), counted([*texts, "见 KT 及 KT。\n" * 5], words)
    assert stray.runs[" KT。\n"] == 5 and not plain.runs
    kept, changed = (choose(found, lexicon, words, **SETTINGS).pieces for found in (plain, stray))
    assert set(changed) == set(kept)


def test_pieces_are_chosen_where_they_save_more_than_their_rivals():
    runs = Counter({"    return ": 100, "-----": 30, " rare": 2})
    cheap = learn(runs, set(), [1e9, 5.0, 5.0], 3, 1000, 1e-6)
    assert {piece for piece in cheap if len(piece) > 1} == {"    return ", "-----"}
    assert cheap["    return "].saved >= 100 and cheap["-"].saved == 0
    assert not learn(runs, set(), [1e9] * 3, 3, 1000, 1e-6)
    assert "-----" not in learn(runs, {"-----"}, [1e9, 5.0, 5.0], 3, 1000, 1e-6)
    assert learn(Counter(), set(), [], 9, 1, 1e-6) == {}


def test_runs_give_back_all_of_a_text_but_han_and_digits():
    text = "Größe x1 = 中 {a_b}\r\n\r\n\t \x00😀 ы" + " " * 50 + "-" * 40 + "a" * 30
    assert "".join(RUN.findall(text)) == re.sub("[中1]", "", text)


@pytest.mark.parametrize("unit", [" ", "-", "a", "\n", "\x00", " -", "a-", "\r\n", "é", "<|eos|>", "```"])
def test_endless_lines_are_written_as_tokenizers_write_them(ours, unit):
    text = unit * (20_000 // len(unit))
    theirs = Tokenizer.from_str(ours.path.read_text(encoding="utf-8"))
    theirs.encode_special_tokens = True
    ids = ours.encode(pa.array([text, "", text + "中"]))[0]
    one = np.array(theirs.encode(text).ids)
    assert np.array_equal(ids[: len(one)], one) and not np.any(ids < len(RESERVED) - 5)
    assert theirs.decode(one, skip_special_tokens=False) == text


def test_a_text_of_one_endless_run_is_learned_from(words, lexicon):
    for unit in few_of((" ", "a", "-", "\n", "ab "), "unit", 1):
        found = counted([unit * (1_000_000 // len(unit)) + "Latin"], words)
        assert len(found.runs) < 10
        assert len(choose(found, lexicon, words, **SETTINGS).pieces) == 4096
