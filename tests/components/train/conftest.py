"""A small token cache of real texts; a training, and a one-process group for engines, in the test process."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from yanmo.formats.records import GENRES, document_id
from yanmo.formats.token_cache import INDEX, SpecialIds, TokenCache, write_index, write_tokens
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.manifest import Reference
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import move_pointer, read_pointer
from yanmo.train import job
from yanmo.train.config import TrainConfig
from yanmo.train.job import WorkerJob

VOCABULARY = 400
SPECIAL = SpecialIds(VOCABULARY, 0, 1, 2, 3, GENRES, (4, 5, 6, 7))
TINY = {
    **{
        "context": 32,
        "layers": 2,
        "width": 32,
        "heads": 2,
        "kv_heads": 1,
        "head_width": 16,
        "feed_forward": 48,
    },
    **{"batch_rows": 8, "steps": 8, "warmup_steps": 2, "log_every": 1, "valid_characters": 300},
    **{"ranks": 1, "threads": 1, "device": "cpu", "checkpoint_seconds": 0},
}


def corpus(count: int) -> list[tuple[str, str, str]]:
    """(genre, id, text) of the first documents of each genre of the bundled corpus."""
    import zstandard

    path = Path(__file__).parents[3] / "corpus" / "small.jsonl.zst"
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        found, seen = [], Counter()
        for line in lines:
            d = json.loads(line)
            if seen[d["genre"]] < count and len(d["text"]) < 400:
                seen[d["genre"]] += 1
                found.append((d["genre"], document_id(d["source"], d["title"], d["text"]), d["text"]))
            if len(seen) == 4 and min(seen.values()) == count:
                break
    return found


@pytest.fixture(scope="session")
def tiny() -> Mapping[str, int | str]:
    """Options of a training of a second or two."""
    return MappingProxyType(TINY)


@pytest.fixture(scope="session")
def faults():
    """The module beside this file (pytest's importlib mode has no siblings to import)."""
    spec = importlib.util.spec_from_file_location("faults", Path(__file__).parent / "faults.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_store(folder: Path, dropped: int = 0) -> Path:
    """A store with one committed token cache, channel dev pointing at it (benchmarks/resume.py too).

    Args:
        dropped: leaves out so many of the first texts, with the same tokenizer: a cache beside the other.
    """
    store = open_store(str(folder))
    texts = corpus(50)
    common = Counter("".join(t for _, _, t in texts)).most_common(VOCABULARY - 8)
    ids = {c: 8 + i for i, (c, _) in enumerate(common)}

    def tokenizer(attempt) -> Result:
        vocabulary = {f"<{i}>": i for i in range(8)} | ids
        model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<3>"}
        attempt.write("tokenizer.json", json.dumps({"version": "1.0", "model": model}))
        attempt.write("tokenizer_config.json", "{}")
        attempt.write("special_tokens_map.json", "{}")
        attempt.write("genres.json", SPECIAL.to_json())
        return Result(counts={"vocab_size": VOCABULARY})

    part = commit_once(store, Recipe(stage="tokenizer", revision=1, semantic={}, inputs={}), tokenizer)

    def cache(attempt) -> Result:
        counts = {"documents": len(texts), "tokens": {}}
        for number, (split, chosen) in enumerate((("train", texts[dropped:-40]), ("valid", texts[-40:]))):
            tokens = [[0, *(ids.get(c, 3) for c in text), 1] for _, _, text in chosen]
            length = np.array([len(t) for t in tokens])
            name = f"{number:05d}-of-00002.parquet"
            digest = part.content_digest
            flat = np.concatenate([np.array(t) for t in tokens])
            counts["tokens"][split] = {"all": len(flat)}
            path = attempt.path(f"tokens-{name}")
            write_tokens(path, flat, vocab_size=VOCABULARY, tokenizer=digest, split=split)
            columns = {
                "id": [i for _, i, _ in chosen],
                "genre": [g for g, _, _ in chosen],
                "split": [split] * len(chosen),
                "offset": np.cumsum(length) - length,
                "length": length.astype(np.int32),
                "characters": np.array([sum(not c.isspace() for c in t) for _, _, t in chosen], np.int32),
                "loss_spans": pa.nulls(len(chosen), INDEX.field("loss_spans").type),
            }
            table = pa.table(columns, schema=INDEX)
            write_index(attempt.path(f"documents-{name}"), table, vocab_size=VOCABULARY, tokenizer=digest)
            attempt.add(f"tokens-{name}")
            attempt.add(f"documents-{name}")
        return Result(counts=counts, references={"tokenizer": part})

    semantic = {"dropped": dropped} if dropped else {}
    output = commit_once(store, Recipe(stage="tokenize", revision=1, semantic=semantic, inputs={}), cache)
    move_pointer(store, "dev", "tokenize", output.reference)
    return folder


@pytest.fixture
def other_text():
    """Adds a token cache of other texts to a store, made with the same tokenizer, and points at it."""
    return lambda store: make_store(store, dropped=7)


@pytest.fixture(scope="session")
def store_template(tmp_path_factory) -> Path:
    """`make_store`, once."""
    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def cache(store_template) -> TokenCache:
    """The token cache of `make_store`."""
    store = open_store(str(store_template))
    return TokenCache.open(open_reference(store, read_pointer(store, "dev", "tokenize")))


@pytest.fixture
def store(store_template, tmp_path) -> Path:
    """A copy of the store to train in."""
    return Path(shutil.copytree(store_template, tmp_path / "store"))


@pytest.fixture(scope="session")
def trained_store(store_template, tmp_path_factory) -> Path:
    """A store with the model of `TINY` that nothing disturbed: to read, or to copy."""
    folder = Path(shutil.copytree(store_template, tmp_path_factory.mktemp("trained") / "store"))
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    command = [sys.executable, "-m", "yanmo.train", f"--store={folder}", "--metrics-port=-1", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def one_rank() -> None:
    """Make this process rank 0 of 1, as torchrun would."""
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(variables, MASTER_PORT=_free_port())
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def train(store, tmp_path, tiny):
    """Run a training in this process: train(folder, stop_at=None, begun_from=None, **options) -> its status.

    Args:
        stop_at: the step after which it is asked to stop.
        begun_from: the model that it goes on from.
        window: other fields of its job.
    """
    from yanmo.train import loop, worker

    def run(
        folder: str,
        stop_at: int | None = None,
        begun_from: Reference | None = None,
        window: Mapping[str, Any] = MappingProxyType({}),
        **options,
    ) -> job.Status:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        reference = read_pointer(open_store(str(store)), "dev", "tokenize")
        config = TrainConfig(**{**tiny, "store": str(store), **options})
        (place / job.STOP).unlink(missing_ok=True)
        step = loop.Loop._train_step

        def train_step(self):
            if self.step + 1 == stop_at:
                (place / job.STOP).touch()
            return step(self)

        loop.Loop._train_step = train_step
        try:
            return worker.train_rank(WorkerJob(config, str(store), reference, begun_from, place, **window), 0)
        finally:
            loop.Loop._train_step = step

    return run


@pytest.fixture
def lines_in(tmp_path):
    """The lines of metrics.jsonl of a training of this process: lines_in(folder)."""

    def lines(folder: str) -> list[dict]:
        text = (tmp_path / folder / job.METRICS).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    return lines


def _free_port() -> str:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])
