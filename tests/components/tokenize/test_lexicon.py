import pytest

from yanmo.common.errors import DataError
from yanmo.tokenize.lexicon import read_lexicon


def test_total_counts_the_word_that_stands_twice_twice_as_jieba_does(lexicon):
    assert lexicon.total == 60_101_967
    assert sum(lexicon.frequency.values()) == lexicon.total - lexicon.frequency["B超"]
    assert len(lexicon.frequency) == 349_045


def test_frequencies_are_those_that_jieba_reads(lexicon):
    from yanmo.tokenize.agreement import jieba_tokenizer

    theirs = jieba_tokenizer()
    assert theirs.total == lexicon.total
    assert {w: f for w, f in theirs.FREQ.items() if f} == {w: f for w, f in lexicon.frequency.items() if f}


def test_words_have_two_characters_or_more_and_no_digit(lexicon):
    words = lexicon.words()
    assert len(words) > 330_000
    assert all(len(word) > 1 for word in words)
    assert not any(c.isdigit() and c.isascii() for word in words for c in word)


def test_unknown_word_scores_as_seen_once(lexicon):
    assert lexicon.scores(["绝无此词"]) == lexicon.scores(["𪚥"])
    assert lexicon.scores(["北京"]) > lexicon.scores(["绝无此词"])


def test_dictionary_of_another_form_is_refused(tmp_path):
    for text in ("北京 12\n", "北京 many ns\n", "北京 1 ns x\n"):
        (tmp_path / "dict.txt").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=r"dict\.txt: expected lines of `word frequency tag`"):
            read_lexicon(tmp_path / "dict.txt")
