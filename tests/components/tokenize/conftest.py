import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output
from yanmo.store.pointers import move_pointer
from yanmo.tokenize.lexicon import Lexicon, dictionary_path, read_lexicon
from yanmo.tokenize.segmenter import Segmenter
from yanmo.tokenize.tokenizer_files import special_ids, write_tokenizer
from yanmo.tokenize.vocabulary import Counts, Vocabulary, choose, dictionary_segmenter

CORPUS = Path(__file__).parents[3] / "corpus" / "small.jsonl.zst"


@pytest.fixture(scope="session")
def corpus() -> list[dict[str, str]]:
    """All 36,000 raw documents of the bundled corpus."""
    with zstandard.open(CORPUS, "rb") as file:
        return [json.loads(line) for line in io.TextIOWrapper(file, encoding="utf-8")]


@pytest.fixture(scope="session")
def few(corpus) -> list[dict[str, str]]:
    """Every twelfth document of the corpus: 3,000."""
    return corpus[::12]


@pytest.fixture(scope="session")
def lexicon() -> Lexicon:
    return read_lexicon(dictionary_path())


@pytest.fixture(scope="session")
def words(lexicon) -> Segmenter:
    """The segmenter over jieba's whole dictionary."""
    return dictionary_segmenter(lexicon)


@pytest.fixture(scope="session")
def counts(few, words) -> Counts:
    result = Counts()
    columns = [pa.array([d[name] for d in few]) for name in ("text", "genre")]
    result.add(pa.RecordBatch.from_arrays(columns, ["text", "genre"]), words)
    return result


@pytest.fixture(scope="session")
def vocabulary(counts, lexicon, words) -> Vocabulary:
    return choose(
        counts, lexicon, words, size=4096, min_character_count=3, character_share=0.7, dictionary_weight=0.01
    )


@pytest.fixture(scope="session")
def tokenizer(vocabulary, counts, tmp_path_factory) -> Output:
    """A committed tokenizer part of 4,096 pieces."""
    store = FileStore(tmp_path_factory.mktemp("tokenizer"))

    def build(attempt):
        special = special_ids(len(vocabulary.pieces), counts.genres)
        write_tokenizer(attempt, vocabulary, special)
        return Result(counts={"vocab_size": special.vocab_size}, metadata=vars(special))

    part = commit_once(store, Recipe(stage="tokenizer", revision=1, semantic={}, inputs={}), build)
    assert part is not None
    return part


@pytest.fixture(scope="session")
def segmenter(tokenizer) -> Segmenter:
    return Segmenter.read(tokenizer.path("tokenizer.json"))


def table_of(documents: list[dict[str, str]], split: str) -> pa.Table:
    """Raw documents as documents v1."""
    rows = [
        {
            "id": document_id(d.get("source", ""), d.get("title", ""), d["text"]),
            "text": d["text"],
            "genre": d["genre"],
            "labels": [],
            "title": d.get("title", ""),
            "author": "",
            "source": d.get("source", ""),
            "license": "",
            "split": split,
            "loss_spans": d.get("loss_spans"),
        }
        for d in documents
    ]
    return pa.Table.from_pylist(rows, schema=DOCUMENTS)


CommitDocuments = Callable[..., Output]


def _commit(root: Path, shards: list[list[dict[str, str]]], valid: list[dict[str, str]]) -> Output:
    store = FileStore(root)
    files = [("train", shard, k, len(shards)) for k, shard in enumerate(shards)]
    files += [("valid", valid, 0, 1)] if valid else []

    def build(attempt):
        for split, documents, k, count in files:
            name = f"{split}-{k:05d}-of-{count:05d}.parquet"
            write_parquet(table_of(documents, split), attempt.path(name))
            attempt.add(name)
        attempt.write("report.json", "{}", role="record")
        return Result(counts={"documents": sum(len(f[1]) for f in files)})

    texts = [[d["text"] for d in f[1]] for f in files]
    output = commit_once(store, Recipe(stage="curate", revision=1, semantic={"t": texts}, inputs={}), build)
    assert output is not None
    move_pointer(store, "dev", "curate", output.reference)
    return output


@pytest.fixture
def commit_documents() -> CommitDocuments:
    """Commits train shards and validation documents as the latest output of curate."""
    return _commit
