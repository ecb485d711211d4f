import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.pointers import move_pointer

CORPUS = Path(__file__).parents[4] / "corpus" / "small.jsonl.zst"


@pytest.fixture(scope="session")
def corpus() -> list[dict[str, str]]:
    """1,500 documents of the bundled corpus, as they are."""
    with zstandard.open(CORPUS, "rb") as file:
        return [json.loads(line) for line in io.TextIOWrapper(file, encoding="utf-8")][::24]


@pytest.fixture(scope="session")
def bpe(corpus, tmp_path_factory) -> Path:
    """A folder with a small byte-level BPE such as Qwen's: no <|bos|>, a special token of its own."""
    folder = tmp_path_factory.mktemp("bpe")
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<|endoftext|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator((d["text"] for d in corpus), trainer)
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def store(tmp_path, corpus) -> Path:
    """A store with 300 training and 40 validation documents as the latest output of curate."""
    root = FileStore(tmp_path / "store")

    def build(attempt):
        for split, documents in (("train", corpus[:300]), ("valid", corpus[300:340])):
            name = f"{split}-00000-of-00001.parquet"
            write_parquet(_table(documents, split), attempt.path(name))
            attempt.add(name)
        return Result(counts={"documents": 340})

    output = commit_once(root, Recipe(stage="curate", revision=1, semantic={}, inputs={}), build)
    move_pointer(root, "dev", "curate", output.reference)
    return tmp_path / "store"


def _table(documents: list[dict[str, str]], split: str) -> pa.Table:
    rows = [
        dict.fromkeys(DOCUMENTS.names, "")
        | {"id": document_id(d["source"], d["title"], d["text"]), "text": d["text"], "genre": d["genre"]}
        | {"labels": [], "split": split, "loss_spans": None, "cluster_size": None}
        for d in documents
    ]
    return pa.Table.from_pylist(rows, schema=DOCUMENTS)
