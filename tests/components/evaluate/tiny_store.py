"""A store with real, tiny outputs: documents, an evaluation set and a two-layer model with its tokenizer."""

import dataclasses
import json
import random
import string

import pyarrow as pa
import torch
from tiny_commit import commit
from tokenizers import Tokenizer, decoders, models

from yanmo.formats.records import DOCUMENTS, document_id, write_parquet
from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.hf_export import Symbols, save
from yanmo.store.opening import open_store

GENRES = ("诗", "词", "文", "赋")
SOURCES = {
    "诗": "chinese-poetry/全唐诗/tang",
    "词": "chinese-poetry/宋词",
    "文": "NiuTrans/a/论语",
    "赋": "k/x",
}
HAN = "明月几时有把酒问青天不知天上宫阙今夕是何年我欲乘风归去又恐琼楼玉宇高处不胜寒"


def make_row(genre, split, number, lines=4, **changes):
    draw = random.Random(f"{genre}{split}{number}")
    text = "\n".join("".join(draw.choices(HAN, k=5)) + "。" for _ in range(lines))
    row = {field.name: None for field in DOCUMENTS}
    row |= {
        "text": text,
        "genre": genre,
        "split": split,
        "title": str(number),
        "author": "",
        "license": "MIT",
    }
    row |= {"labels": {}, "source": SOURCES.get(genre, "x"), **changes}
    row["id"] = document_id(row["source"], row["title"], row["text"])
    return row


def parquet(rows, metadata=None):
    schema = DOCUMENTS.with_metadata({**DOCUMENTS.metadata, **(metadata or {})})
    return lambda path: write_parquet(pa.Table.from_pylist(rows, schema=schema), path)


def make_tokenizer(path):
    special = ["<|bos|>", "<|eos|>", "<|pad|>", "<unk>", *(f"<|tag_{i:02d}|>" for i in range(64))]
    pieces = [(name, -10_000.0) for name in special] + [(f"<0x{i:02X}>", -20.0) for i in range(256)]
    pieces += [(c, -5.0) for c in [*dict.fromkeys(HAN), "。", "\n", "明月", *string.printable[:94]]]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(path))


def make_model(folder, *, seed=0, vocab_size=None, **shape):
    """Write a random model and return the names of its files."""
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(folder / "tokenizer.json")
    size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    values = {
        "vocab_size": vocab_size or size,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "intermediate_size": 32,
        "max_position_embeddings": 16,
    }
    torch.manual_seed(seed)
    model = Decoder(DecoderConfig(**{**values, **shape}))
    symbols = Symbols(bos=0, eos=1, pad=2, genres=GENRES, tag_ids=(4, 5, 6, 7))
    return ["tokenizer.json", *save(model, symbols, folder)]


def copied(folder, names):
    def copy(name):
        return lambda path: path.write_bytes((folder / name).read_bytes())

    return {name: copy(name) for name in names}


@dataclasses.dataclass
class Ground:
    """The store and what lies in it."""

    store: object
    folder: object
    documents: object
    evaluation_set: object
    model: object

    def arguments(self, *more):
        return ["--store", str(self.folder), "--metrics-port", "-1", "--workers", "1", *more]


def make_ground(folder, model_folder):
    """Training text, evaluation set and model in the store at `folder`, a path or a URI."""
    store = open_store(str(folder))
    train = [make_row(g, "train", i) for g in GENRES for i in range(40)]
    test = [make_row(g, "test", i) for g in GENRES for i in range(12)]
    valid = [make_row(g, "valid", i) for g in GENRES for i in range(3)]
    documents = commit(store, "curate", {"train-00000-of-00001.parquet": parquet(train)})
    evaluation_set = commit(
        store,
        "evaluation_set",
        {"test-00000-of-00001.parquet": parquet(test), "valid-00000-of-00001.parquet": parquet(valid)},
    )
    names = make_model(model_folder)
    model = commit(store, "train", copied(model_folder, names))
    return Ground(store, folder, documents, evaluation_set, model)


def read(output, name):
    return json.loads(output.path(name).read_text(encoding="utf-8"))
