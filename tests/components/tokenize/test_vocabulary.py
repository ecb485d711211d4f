import math
import re

import numpy as np
import pyarrow as pa
import pytest

from yanmo.common.errors import DataError
from yanmo.common.logs import progress
from yanmo.tokenize.lexicon import dictionary_path, read_lexicon, user_lines, with_user_words
from yanmo.tokenize.vocabulary import (
    ALWAYS,
    BYTES,
    SPECIAL,
    TAGS,
    Counts,
    _characters,
    choose,
    count,
    dictionary_segmenter,
)

SETTINGS = {"min_character_count": 3, "character_share": 0.7, "dictionary_weight": 0.01}


def test_ids_are_special_tokens_tags_bytes_and_pieces_by_falling_score(vocabulary):
    assert vocabulary.pieces[:4] == ["<|bos|>", "<|eos|>", "<|pad|>", "<unk>"] == list(SPECIAL)
    assert vocabulary.pieces[4:63] == list(TAGS) and TAGS[58] == "<|tag_58|>"
    assert vocabulary.pieces[63:68] == ["system", "user", "assistant", "<|im_start|>", "<|im_end|>"]
    assert vocabulary.pieces[68:324] == list(BYTES)
    rest = vocabulary.scores[324:]
    assert rest == sorted(rest, reverse=True)
    assert len(vocabulary.pieces) == len(set(vocabulary.pieces)) == len(vocabulary.scores) == 4096


def test_scores_are_jiebas_own(vocabulary, lexicon):
    score = dict(zip(vocabulary.pieces, vocabulary.scores, strict=True))
    known = [piece for piece in score if len(piece) > 1 and piece in lexicon.frequency]
    assert len(known) > 500
    for piece in known:
        assert score[piece] == math.log(lexicon.frequency[piece]) - math.log(60_101_967)


def test_ascii_and_white_space_are_pieces_whatever_the_text(vocabulary):
    assert set(vocabulary.pieces) >= ALWAYS
    assert {"\n", "\r", "\t", "\u3000", " ", "~", "0"} <= ALWAYS


def test_each_character_of_the_text_that_is_frequent_enough_is_a_piece(vocabulary, few):
    text = "".join(d["text"] for d in few)
    pieces = set(vocabulary.pieces)
    frequent = {c for c in set(text) if text.count(c) >= vocabulary.min_character_count}
    assert frequent <= pieces
    assert {p for p in pieces if len(p) == 1} == frequent | ALWAYS


def test_larger_vocabulary_holds_the_smaller_ones_words(counts, lexicon, words):
    small, large = (
        choose(
            counts,
            lexicon,
            words,
            size=size,
            **SETTINGS | {"min_character_count": 60, "character_share": 1.0},
        )
        for size in (4096, 8192)
    )
    assert set(small.pieces) < set(large.pieces)


def test_word_weight_of_jieba_brings_modern_words(counts, lexicon, words):
    old, modern = (
        set(choose(counts, lexicon, words, size=4096, **SETTINGS | {"dictionary_weight": w}).pieces)
        for w in (0.0, 10.0)
    )
    assert "经济" in modern - old


def test_vocabulary_without_room_for_ascii_is_refused(counts, lexicon, words):
    with pytest.raises(DataError, match="--vocab-size 400: special tokens, bytes and ASCII alone need 423"):
        choose(counts, lexicon, words, size=400, **SETTINGS)


def test_text_without_any_known_word_still_gives_a_whole_vocabulary(lexicon, words):
    nothing = Counts(words=np.zeros(words.vocab_size, np.int64))
    assert len(choose(nothing, lexicon, words, size=2048, **SETTINGS).pieces) == 2048


def test_characters_may_take_exactly_their_share():
    counted = Counts().characters
    for code, number in zip(map(ord, "春江潮水连"), (3, 3, 4, 5, 6), strict=True):
        counted[code] = number
    everything = ALWAYS | set("春江潮水连")
    assert _characters(counted, len(everything), 3, 1.0) == (everything, 3)
    assert _characters(counted, len(everything) - 1, 3, 1.0) == (everything - set("春江"), 4)
    assert _characters(counted, 2 * len(everything), 3, 0.5) == (everything, 3)


def test_a_vocabulary_of_words_that_the_text_does_not_have_is_said(counts, lexicon, words, caplog):
    small = Counts()
    texts, genres = pa.array(["床前明月光，疑是地上霜。举头望明月，低头思故乡。"] * 9), pa.array(["诗"] * 9)
    small.add(pa.record_batch({"text": texts, "genre": genres}), words)
    choose(small, lexicon, words, size=4096, **SETTINGS)
    found = re.search(r"(\d+) of the vocabulary's (\d+) words are not .* only 216 characters", caplog.text)
    assert found and int(found[1]) > int(found[2]) / 2 and "--vocab-size of about" in caplog.text
    caplog.clear()
    choose(counts, lexicon, words, size=4096, **SETTINGS)
    assert "not in the training text" not in caplog.text


@pytest.mark.process
def test_workers_count_what_one_process_counts(commit_documents, few, tmp_path):
    latin = [{**d, "text": d["text"] + " Hello World"} for d in few[300:340]]
    shards = [few[:100], few[100:101], latin, few[400:700]]
    paths = commit_documents(tmp_path, shards, []).paths("train-*.parquet")
    user = user_lines("研墨先生 900 n\n".encode(), "here")
    words = dictionary_segmenter(with_user_words(read_lexicon(dictionary_path()), user))
    found = []
    for workers in (1, 3):
        found.append(count(paths, words, user, workers))
        [told] = [one for one in progress() if one.name == "counted file, files"]
        assert told.done == told.total == 4
    alone, together = found
    assert np.array_equal(alone.characters, together.characters) and alone.characters.sum() > 10_000
    assert np.array_equal(alone.words, together.words) and len(alone.words) == words.vocab_size
    assert alone.runs == together.runs and alone.runs["World"] == 40
    assert alone.genres == together.genres


@pytest.mark.process
def test_a_damaged_file_is_named_by_a_worker(commit_documents, few, words, tmp_path):
    paths = commit_documents(tmp_path, [few[:50], few[50:90]], []).paths("train-*.parquet")
    paths[1].chmod(0o644)
    paths[1].write_bytes(paths[1].read_bytes()[:-10])
    with pytest.raises(DataError, match="train-00001"):
        count(paths, words, b"", 2)
