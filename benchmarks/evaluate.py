"""Speed of scoring, beside lm-evaluation-harness on the same documents of the same model in one run.

    python benchmarks/evaluate.py --store file:///path/of/store --channel demo [--documents 40] [--harness]

The harness reads the exported folder through its own `hf` model (transformers, fp32, one thread, the same
context) and gives `loglikelihood_rolling` of each text; both charge every character of the text. Its windows
do not overlap, so a long text is read once and not twice, behind less context: both ways are timed.
`--harness` needs `pip install 'yanmo[harness]' transformers accelerate`.
CPU-seconds and wall-seconds, one thread each.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
import torch

from yanmo.common.store.objects import open_store
from yanmo.common.store.output import open_reference
from yanmo.common.store.pointers import read_pointer
from yanmo.evaluate.budget import first_of_each_genre
from yanmo.evaluate.documents import Document, read_split
from yanmo.evaluate.scoring import LoadedModel, load_model
from yanmo.model.scoring import token_bits


def timed(name: str, characters: int, run: Callable[[], Any]) -> tuple[Any, float]:
    """What `run` gives and its CPU-seconds; prints them."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{name:24} {cpu:7.2f} CPU s {wall:7.2f} s {characters / cpu:9.0f} characters per CPU s", flush=True
    )
    return found, cpu


def ours(loaded: LoadedModel, documents: list[Document], stride: int = 0) -> float:
    """Bits of all texts, without their end: the harness does not score it."""
    ids = loaded.encode([d.text for d in documents])
    return float(
        sum(b.sum() for b in token_bits(loaded.model, [np.array(i[:-1]) for i in ids], stride=stride))
    )


def harness(folder: str, context: int, batch: int) -> Callable[[list[Document]], float]:
    """The harness's own reading of the same texts."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(
        pretrained=folder, device="cpu", dtype="float32", batch_size=batch, max_length=context,
        add_bos_token=False, prefix_token_id=0,
    )  # fmt: skip

    def run(documents: list[Document]) -> float:
        asked = [Instance("loglikelihood_rolling", {}, (d.text,), i) for i, d in enumerate(documents)]
        return -float(sum(model.loglikelihood_rolling(asked, disable_tqdm=True))) / float(np.log(2))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--channel", default="demo")
    parser.add_argument("--documents", type=int, default=40, help="of each genre")
    parser.add_argument("--harness", action="store_true", help="also time lm-evaluation-harness")
    parser.add_argument("--harness-batch", type=int, default=16, help="its batch size")
    args = parser.parse_args()
    torch.set_num_threads(1)
    store = open_store(args.store)
    model, texts = (
        open_reference(store, read_pointer(store, args.channel, n)) for n in ("train", "evaluation_set")
    )
    loaded = load_model(model)
    documents = first_of_each_genre(read_split(texts, "test"), args.documents)
    characters = sum(d.characters for d in documents)
    print(f"{len(documents)} documents, {characters} characters, torch {torch.__version__}, 1 thread")
    ours(loaded, documents[:4])
    bits, mine = timed("yanmo", characters, lambda: ours(loaded, documents))
    print(f"{'':24} {bits / characters:.4f} bits per character")
    context = loaded.model.config.max_position_embeddings
    bits, alike = timed("yanmo, no overlap", characters, lambda: ours(loaded, documents, context))
    print(f"{'':24} {bits / characters:.4f} bits per character")
    if args.harness:
        run = harness(str(model.path("config.json").parent), context, args.harness_batch)
        run(documents[:4])
        theirs, cpu = timed("lm-evaluation-harness", characters, lambda: run(documents))
        print(f"{'':24} {theirs / characters:.4f} bits per character")
        print(f"ratio {cpu / mine:.2f}; without overlap, as the harness reads, {cpu / alike:.2f}")


if __name__ == "__main__":
    main()
