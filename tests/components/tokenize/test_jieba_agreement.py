import itertools
import math
from collections import Counter

import pyarrow as pa
import pytest

from yanmo.tokenize.jieba_agreement import (
    agreement,
    agreement_counts,
    jieba_ends,
    sampled,
    sentences_of,
    shares_of,
    thinned,
    token_ends,
)
from yanmo.tokenize.lexicon import jieba_tokenizer


def joined_like_jieba(ends: set[int], sentence: str) -> set[int]:
    """`ends` without those inside a run of single ASCII letters and digits, which jieba joins afterwards."""
    ordered = sorted(ends)
    pairs = zip([0, *ordered], ordered, strict=False)
    single = {e for b, e in pairs if e - b == 1 and sentence[b].isascii() and sentence[b].isalnum()}
    return {e for e in ends if not (e in single and e + 1 in single)}


def cut(ends: set[int], sentence: str) -> list[str]:
    return [sentence[a:b] for a, b in itertools.pairwise([0, *sorted(ends)])]


@pytest.fixture(scope="module")
def sentences(corpus):
    return thinned(sentences_of(d["text"] for d in corpus[::9]), 5000)


def test_counts_of_two_halves_add_up_to_those_of_the_whole(segmenter, sentences):
    halves = (agreement_counts(segmenter, half) for half in (sentences[:300], sentences[300:500]))
    assert shares_of(sum(halves, Counter())) == agreement(segmenter, sentences[:500])


def test_full_dictionary_cuts_as_jieba_does(words, sentences):
    """The goal is 99.99 %; exact ties (呵呵呵) are the only difference ever seen."""
    assert len(sentences) == 5000
    cuts = zip(token_ends(words, sentences), jieba_ends(sentences), sentences, strict=True)
    differ = [(ours, theirs, s) for ours, theirs, s in cuts if joined_like_jieba(ours, s) != theirs]
    assert len(differ) <= 2
    for ours, theirs, sentence in differ:
        sums = [sum(words.scores[words.ids[w]] for w in cut(ends, sentence)) for ends in (ours, theirs)]
        assert math.isclose(*sums, abs_tol=1e-9), sentence


def test_exact_tie_is_the_known_difference(words):
    assert jieba_ends(["呵呵呵"]) == [{2, 3}]
    assert token_ends(words, ["呵呵呵"]) == [{1, 3}]


def test_pruned_vocabulary_keeps_jiebas_boundaries(segmenter, sentences):
    found = agreement(segmenter, sentences)
    assert found["sentences"] == 5000
    assert found["boundary_recall"] >= 0.995
    assert found["sentences_uncrossed"] >= 0.95


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
