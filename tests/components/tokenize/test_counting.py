import numpy as np
import pytest

from yanmo.common.errors import DataError
from yanmo.common.logs import progress
from yanmo.tokenize.counting import count
from yanmo.tokenize.lexicon import dictionary_path, read_lexicon, user_lines, with_user_words
from yanmo.tokenize.vocabulary import dictionary_segmenter


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
