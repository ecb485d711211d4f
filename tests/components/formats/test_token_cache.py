import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yanmo.common.errors import DataError
from yanmo.formats import token_cache
from yanmo.formats.token_cache import INDEX, SpecialIds, TokenCache, open_tokens, write_index, write_tokens
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output

SPECIAL = SpecialIds(
    vocab_size=324, bos=0, eos=1, pad=2, unk=3, genres=("诗", "词", "文", "赋"), tag_ids=(4, 5, 6, 7)
)


def index_of(documents: list[tuple[str, list[int]]], split: str) -> pa.Table:
    """The document table of `(genre, ids)` pairs laid end to end."""
    lengths = [len(ids) for _, ids in documents]
    rows = [
        {
            "id": hashlib.sha256(f"{split}{k}{genre}".encode()).hexdigest(),
            "genre": genre,
            "split": split,
            "offset": sum(lengths[:k]),
            "length": len(ids),
            "characters": len(ids) - 2,
            "loss_spans": [[1, 2]] if genre == "词" else None,
        }
        for k, (genre, ids) in enumerate(documents)
    ]
    return pa.Table.from_pylist(rows, schema=INDEX)


def commit_cache(
    root: Path,
    shards: list[tuple[str, list[tuple[str, list[int]]]]],
    vocab_size: int = 324,
    before_commit: Callable[[Path], object] = lambda path: None,
) -> Output:
    store = FileStore(root)
    special = SpecialIds(**(vars(SPECIAL) | {"vocab_size": vocab_size}))

    def tokenizer(attempt):
        attempt.write("genres.json", special.to_json())
        return Result(counts={"vocab_size": vocab_size})

    part = commit_once(
        store, Recipe(stage="tokenizer", revision=1, semantic={"v": vocab_size}, inputs={}), tokenizer
    )
    assert part is not None

    def build(attempt):
        for k, (split, documents) in enumerate(shards):
            name = f"{k:05d}-of-{len(shards):05d}.parquet"
            ids = np.array([i for _, ids in documents for i in ids], np.int64)
            digest = part.content_digest
            write_tokens(
                attempt.path(f"tokens-{name}"), ids, vocab_size=vocab_size, tokenizer=digest, split=split
            )
            table = index_of(documents, split)
            write_index(attempt.path(f"documents-{name}"), table, vocab_size=vocab_size, tokenizer=digest)
            for file in (f"tokens-{name}", f"documents-{name}"):
                before_commit(attempt.path(file))
                attempt.add(file)
        return Result(counts={}, references={"tokenizer": part})

    recipe = Recipe(stage="tokenize", revision=1, semantic={}, inputs={"tokenizer": part})
    output = commit_once(store, recipe, build)
    assert output is not None
    return output


SHARDS = [
    ("train", [("诗", [0, 70, 71, 1]), ("曲", [0, 1])]),
    ("valid", [("文", [0, 300, 1])]),
    ("train", [("词", [0, 99, 98, 97, 1])]),
]


def test_cache_gives_back_each_document_of_each_split(tmp_path):
    cache = TokenCache.open(commit_cache(tmp_path, SHARDS))
    train = cache.split("train")
    read = [
        (cache.genres[g], cache.tokens[s][o : o + n].tolist())
        for g, s, o, n in zip(train.genre, train.shard, train.offset, train.length, strict=True)
    ]
    assert read == SHARDS[0][1] + SHARDS[2][1]
    assert train.characters.tolist() == [2, 0, 3]
    assert train.loss_spans == {2: [[1, 2]]}
    assert len(cache.split("valid")) == 1
    assert len(set(train.ids)) == 3
    assert cache.tokens[0].dtype == np.uint16


def test_genre_without_a_tag_comes_after_the_tagged_ones_and_has_no_tag(tmp_path):
    cache = TokenCache.open(commit_cache(tmp_path, SHARDS))
    assert cache.genres == ["诗", "词", "文", "赋", "曲"]
    assert cache.tag_ids == [4, 5, 6, 7, -1]


def test_shard_without_documents_is_read_and_an_absent_split_is_empty(tmp_path):
    cache = TokenCache.open(commit_cache(tmp_path, [("train", []), *SHARDS]))
    assert len(cache.tokens[0]) == 0
    assert cache.split("train").shard.tolist() == [1, 1, 3]
    none = cache.split("none")
    assert len(none) == 0 and none.genre.dtype == np.int16 and none.shard.dtype == np.int32


@pytest.mark.parametrize("num", [0, 1, 1023, 1024, 1025, 2_000_000])
@pytest.mark.parametrize(("vocab_size", "dtype"), [(65536, "uint16"), (65537, "uint32")])
def test_token_file_is_mapped_exactly(tmp_path, num, vocab_size, dtype):
    ids = np.random.default_rng(num).integers(0, vocab_size, num)
    path = tmp_path / "tokens.parquet"
    write_tokens(path, ids, vocab_size=vocab_size, tokenizer="t", split="train")
    file = open_tokens(path)
    assert file.ids.dtype.name == dtype
    assert np.array_equal(file.ids, ids)
    assert num == 0 or isinstance(file.ids.base, np.memmap)


def test_a_file_takes_as_many_bytes_as_it_may_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(token_cache, "MAX_BYTES", 64)
    path, more = tmp_path / "tokens.parquet", {"vocab_size": 9, "tokenizer": "t", "split": "train"}
    write_tokens(path, np.arange(32) % 9, **more)
    assert len(open_tokens(path).ids) == 32
    with pytest.raises(ValueError, match="at most 64"):
        write_tokens(path, np.arange(33) % 9, **more)


def test_ids_split_over_pages_are_refused(tmp_path):
    """As another version of pyarrow may write them: ids mixed with headers would be trained on."""
    path = tmp_path / "tokens.parquet"
    write_tokens(path, np.zeros(4096, np.int64), vocab_size=9, tokenizer="t", split="train")
    pq.write_table(
        pq.read_table(path),
        path,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        max_rows_per_page=2,
    )
    with pytest.raises(DataError, match="not in one page"):
        open_tokens(path)


def test_more_than_twenty_thousand_rows_stay_in_one_page(tmp_path):
    """pyarrow's default of 20,000 rows a page would put page headers among the ids."""
    ids = np.arange(21_000 * 1024, dtype=np.uint32) % 8192
    path = tmp_path / "tokens.parquet"
    write_tokens(path, ids, vocab_size=8192, tokenizer="t", split="train")
    assert np.array_equal(open_tokens(path).ids, ids)


def test_id_outside_of_the_vocabulary_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="token id 9 outside of a vocabulary of 9"):
        write_tokens(tmp_path / "t", np.array([0, 9]), vocab_size=9, tokenizer="t", split="train")


def test_equal_ids_give_equal_bytes(tmp_path):
    for name in "ab":
        write_tokens(tmp_path / name, np.arange(5000), vocab_size=8192, tokenizer="t", split="train")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("name", ["vocab_size", "tokenizer", "version", "schema"])
def test_another_file_is_refused_by_the_field_that_differs(tmp_path, monkeypatch, name):
    path = tmp_path / "t"
    if name == "schema":
        pq.write_table(pa.table({"tokens": [1, 2, 3]}), path)
        with pytest.raises(DataError, match="schema differs: expected 'token_documents', found None"):
            token_cache.read_index(path)
    else:
        monkeypatch.setattr(token_cache, "VERSION", "2" if name == "version" else "1")
        write_tokens(path, np.arange(9), vocab_size=10, tokenizer="t", split="train")
        monkeypatch.undo()
    with pytest.raises(DataError, match=f"{name} differs: expected '.*', found"):
        open_tokens(path, {name: "other"} if name in ("vocab_size", "tokenizer") else None)
