from collections import Counter

import pyarrow as pa
import pytest

from yanmo.tokenize.jieba_agreement import (
    agreement,
    agreement_counts,
    full_agreement,
    jieba_ends,
    joined_like_jieba,
    sampled,
    sentences_of,
    shares_of,
    thinned,
    token_ends,
)
from yanmo.tokenize.lexicon import jieba_tokenizer


@pytest.fixture(scope="module")
def sentences(corpus):
    return thinned(sentences_of(d["text"] for d in corpus[::9]), 5000)


def test_counts_of_two_halves_add_up_to_those_of_the_whole(segmenter, sentences):
    halves = (agreement_counts(segmenter, half) for half in (sentences[:300], sentences[300:500]))
    assert shares_of(sum(halves, Counter())) == agreement(segmenter, sentences[:500])


def test_full_dictionary_cuts_as_jieba_does(words, sentences):
    """The goal is 99.99 %; exact ties (呵呵呵) are the only difference ever seen."""
    assert len(sentences) == 5000
    found = full_agreement(words, sentences)
    assert found["identical"] >= 0.9995
    assert found["ties"] == round((1 - found["identical"]) * 5000)


def test_exact_tie_is_the_known_difference(words):
    assert full_agreement(words, ["呵呵呵", "手牵着手", "春眠"]) == {
        "sentences": 3,
        "identical": 0.333333,
        "ties": 2,
    }
    assert jieba_ends(["呵呵呵"]) == [{2, 3}]
    assert token_ends(words, ["呵呵呵"]) == [{1, 3}]


def test_pruned_vocabulary_keeps_jiebas_boundaries(segmenter, sentences):
    found = agreement(segmenter, sentences)
    assert found["sentences"] == 5000
    assert found["boundary_recall"] >= 0.995
    assert found["sentences_uncrossed"] >= 0.95


def test_difference_that_no_tie_explains_is_not_called_one(words):
    from yanmo.tokenize.segmenter import Segmenter
    from yanmo.tokenize.vocabulary import BYTES

    wrong = Segmenter.of([*BYTES, "我来", "到", "北京"], [-900.0] * 256 + [-1.0] * 3)
    assert full_agreement(wrong, ["我来到北京"]) == {"sentences": 1, "identical": 0.0, "ties": 0}


def test_recall_falls_when_tokens_cross_words(words):
    """One of two inner and end boundaries is lost where a token spans the word boundary."""
    from yanmo.tokenize.segmenter import Segmenter
    from yanmo.tokenize.vocabulary import BYTES

    crossing = Segmenter.of([*BYTES, "我来", "到", "北京"], [-900.0] * 256 + [-1.0] * 3)
    assert jieba_tokenizer().lcut("我来到北京", HMM=False) == ["我", "来到", "北京"]
    found = agreement(crossing, ["我来到北京"])
    assert found == {"sentences": 1, "boundary_recall": round(2 / 3, 6), "sentences_uncrossed": 0.0}


def test_token_ends_inside_of_a_character_are_no_ends(words):
    assert token_ends(words, ["𠀀𠀁中国", "", "ab"]) == [{1, 2, 4}, set(), {1, 2}]


def test_runs_of_letters_and_digits_are_joined_as_jieba_joins_them():
    sentence = "abc d12，e"
    assert joined_like_jieba(set(range(1, 10)), sentence) == jieba_ends([sentence])[0] == {3, 4, 7, 8, 9}


def test_sample_is_spread_over_the_text():
    assert thinned([str(i) for i in range(100)], 4) == ["0", "25", "50", "75"]
    assert thinned(["a"], 4) == ["a"]
    texts = pa.array([f"{i}。再" for i in range(640)])
    assert len(sampled(texts)) == 128 and sampled(texts)[::2][-1] == "639。"
    assert sampled(texts.slice(0, 1)) == ["0。", "再"]
    assert sentences_of(["一。二！三", "", "四\n五"], per_text=2) == ["一。", "二！", "四", "五"]


def test_jieba_leaves_no_cache_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    jieba_tokenizer.cache_clear()
    jieba_tokenizer().lcut("北京", HMM=False)
    assert list(tmp_path.iterdir()) == []
