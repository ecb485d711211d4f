"""Trains one recipe with several seeds in one process, and writes the bits of each test document under each.

    python benchmarks/seed_noise.py --out TABLE.parquet --seeds 8 [--share 0.125] -- RECIPE

RECIPE: options of `yanmo train` (--store STORE --steps 150 --layers 2 ...), `--token-cache` and `--model`
among them; the evaluation set is the channel's. The trainings are the stage's own worker without its
checkpoints, export and commit; documents are scored as `yanmo evaluate` scores them. With --share the
recipe's twins are trained: as `yanmo train --twins` makes them, at this share of the steps. A seed that TABLE
holds already is not trained again, so that the same command goes on after a kill.

A row of TABLE is a test document: id, genre, characters, and a column of bits for each seed. Its metadata
says options, commit, processor, seconds of CPU, and the bits per character of the validation split. The
simulations of benchmarks/gate.py rest on such tables.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from yanmo.common.made_by import made_by
from yanmo.evaluate.documents.reading import read_split
from yanmo.formats.round_trip import open_tokenizer
from yanmo.formats.token_cache import TokenCache
from yanmo.model.reader import Reader
from yanmo.model.scoring import document_bits
from yanmo.options.command_line import load
from yanmo.options.fields import by_kind
from yanmo.stage.inputs import open_input
from yanmo.store.opening import open_store
from yanmo.store.output import Output
from yanmo.train.backends.accelerator import prepare
from yanmo.train.backends.open_engine import open_engine
from yanmo.train.collectives import Collectives
from yanmo.train.config import TrainConfig
from yanmo.train.curve import Curve
from yanmo.train.job import WorkerJob
from yanmo.train.loop import Loop
from yanmo.train.supervision.continued import as_continued
from yanmo.train.supervision.twins import twin_of
from yanmo.train.validate import Validation
from yanmo.train.worker import decoder_of, samples_of

HOW = {
    **{"ranks": 1, "threads": 1, "backend": "torch", "device": "cpu", "compile": False},
    **{"checkpoint_steps": 0, "checkpoint_seconds": 0.0, "monitor": "off", "valid_characters": 0},
}
"""What changes no figure, and what is left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.0, help="of the steps; 0 trains all of them")
    parser.add_argument("recipe", nargs="+")
    given = parser.parse_args()
    options = load(TrainConfig, given.recipe, "yanmo train")
    written = {word.partition("=")[0].removeprefix("--").replace("-", "_") for word in given.recipe}
    options = replace(as_continued(options, written, goes_on=options.model != "none"), **HOW)
    store = open_store(options.store)

    def opened(text: str, name: str) -> Output | None:
        return open_input(store, text or "latest", name, pointers=[(options.channel, name)])

    cache_output = opened(options.token_cache, "tokenize")
    model = opened(options.model, "train") if options.model != "none" else None
    documents = read_split(opened("latest", "evaluation_set"), "test")
    cache = TokenCache.open(cache_output)
    reader = open_tokenizer(cache.tokenizer.path("tokenizer.json"))
    ids = [
        np.array([cache.bos, *e.ids, cache.eos], np.int64)
        for e in reader.encode_batch([d.text for d in documents], add_special_tokens=False)
    ]
    for number in range(given.seeds):
        column = f"seed {number}"
        if given.out.exists() and column in pq.read_schema(given.out).names:
            continue
        one = (
            twin_of(replace(options, twin_share=given.share), number)
            if given.share
            else replace(options, seed=number + 1)
        )
        began = time.process_time()
        with tempfile.TemporaryDirectory(prefix="yanmo-seed-") as folder:
            task = WorkerJob(
                one, store.uri, cache_output.reference, model.reference if model else None, Path(folder)
            )
            bits, valid = trained(task, cache, ids)
        spent = round(time.process_time() - began, 1)
        keep(
            given.out, documents, column, bits, {"seed": one.seed, "valid": valid, "cpu_seconds": spent}, one
        )
        print(f"{given.out.name} {column} ({one.steps} steps): {spent} s, {valid}", flush=True)


def trained(task: WorkerJob, cache: TokenCache, documents: list[Any]) -> tuple[Any, dict[str, float]]:
    """Bits of each document, and bits per character of the validation split by genre."""
    options = task.options
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed * 1_000_003)
    samples = samples_of(options, cache)
    decoder = decoder_of(task, cache, samples, 0)
    prepare(decoder, options, "cpu")
    engine = open_engine(decoder, options, "cpu")
    loop = Loop(
        options=options,
        engine=engine,
        samples=samples,
        validation=Validation.choose(cache, 0),
        curve=Curve.of(options, cache),
        folder=task.folder,
        identity={},
        collectives=Collectives(1, engine.device),
    )
    assert loop.run() == "done"
    valid = Validation.choose(cache, 10_000_000).bits_per_character(engine)
    with engine.scoring() as model:
        bits = document_bits(Reader(model), documents)
    return bits, valid


def keep(
    path: Path, documents: list[Any], column: str, bits: Any, figures: dict[str, Any], options: TrainConfig
) -> None:
    """Add a column to the table at `path`."""
    if path.exists():
        table = pq.read_table(path)
    else:
        table = pa.table(
            {
                "id": [d.id for d in documents],
                "genre": pa.array([d.genre for d in documents]).dictionary_encode(),
                "characters": pa.array([d.characters for d in documents], pa.int32()),
            }
        )
    said = json.loads((table.schema.metadata or {}).get(b"yanmo.seeds", b"{}"))
    said |= {column: figures}
    about = {
        "options": by_kind(options, "semantic") | {"seed": None},
        **made_by(),
    }
    table = table.append_column(column, pa.array(bits, pa.float32()))
    table = table.replace_schema_metadata(
        {"yanmo.seeds": json.dumps(said, ensure_ascii=False), "yanmo.about": json.dumps(about)}
    )
    pq.write_table(table, path.with_suffix(".new"), compression="zstd")
    path.with_suffix(".new").replace(path)


if __name__ == "__main__":
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    main()
