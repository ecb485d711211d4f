"""Speed of scoring, beside lm-evaluation-harness on the same documents of the same model in one run.

    python benchmarks/evaluate.py --store file:///path/of/store --channel demo [--documents 40] [--harness]
                                  [--harness-batch 1 16 auto] [--shape 512 8 8192] [--rounds 3]

The harness reads the exported folder through its own `hf` model (transformers, fp32, the same context). Three
kinds of question, each asked of both:

    rolling  `loglikelihood_rolling` of each text. Its windows do not overlap, so a text longer than the
             context is read once and not twice, behind less context; yanmo is timed as it measures and as
             the harness reads
    answers  `loglikelihood` of the latter half of each text behind its first half, texts cut to the
             context: the same windows in both
    choices  `loglikelihood` of four answers behind the first half of each text: of its own second half
             and those of three others, all cut to eight characters

`--shape width layers context` takes a model of random weights and that shape in place of the store's.
Lowest CPU-seconds of some rounds, the systems taking turns, on one thread or `--threads`; and wall-seconds.
`--harness` needs `pip install '.[harness]' transformers accelerate`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.update(
    LOGLEVEL="ERROR", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false"
)

import numpy as np
import torch

from yanmo.evaluate.bits.of_documents import LoadedModel, load_model
from yanmo.evaluate.documents.budget import first_of_each_genre
from yanmo.evaluate.documents.reading import read_split
from yanmo.evaluate.tasks.harness import loglikelihoods
from yanmo.model import hf_export
from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.scoring import token_bits
from yanmo.store.opening import open_store
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

Pairs = list[tuple[str, str]]


def rolling(loaded: LoadedModel, texts: list[str], threads: int, stride: int = 0) -> float:
    """Bits of all texts, without their end: the harness does not score it."""
    reads = [np.array(ids[:-1]) for ids in loaded.encode(texts)]
    return float(sum(b.sum() for b in token_bits(loaded.reader, reads, stride=stride, threads=threads)))


def answers(loaded: LoadedModel, pairs: Pairs, threads: int) -> float:
    """Bits of all second halves."""
    return -sum(nats for nats, _ in loglikelihoods(loaded, pairs, threads)) / float(np.log(2))


def harness(folder: str, context: int, batch: str) -> tuple[Callable[..., float], Callable[..., float]]:
    """The harness's own reading of the same texts, and of the same halves."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(
        pretrained=folder, device="cpu", dtype="float32", batch_size=batch, max_length=context,
        add_bos_token=False, prefix_token_id=0,
    )  # fmt: skip

    def roll(texts: list[str]) -> float:
        asked = [Instance("loglikelihood_rolling", {}, (text,), i) for i, text in enumerate(texts)]
        return -float(sum(model.loglikelihood_rolling(asked, disable_tqdm=True))) / float(np.log(2))

    def answer(pairs: Pairs) -> float:
        asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
        found = model.loglikelihood(asked, disable_tqdm=True)
        return -float(sum(nats for nats, _ in found)) / float(np.log(2))

    return roll, answer


def halves(loaded: LoadedModel, texts: list[str], context: int) -> Pairs:
    """First and second half of as much of each text as the context holds."""
    cut = (
        text[: int((context - 8) * len(text) / len(ids))]
        for text, ids in zip(texts, loaded.encode(texts), strict=True)
    )
    return [(text[: len(text) // 2], text[len(text) // 2 :]) for text in cut if len(text) > 3]


def choices(pairs: Pairs) -> Pairs:
    """Four short answers to each question, its own first."""
    ends = [second[:8] for _, second in pairs]
    return [
        (first, ends[(i + step) % len(ends)]) for i, (first, _) in enumerate(pairs) for step in (0, 1, 2, 3)
    ]


def of_shape(output: Output, loaded: LoadedModel, width: int, layers: int, context: int) -> str:
    """A folder with a model of random weights and the store's tokenizer."""
    folder = Path(tempfile.mkdtemp())
    config = DecoderConfig(
        vocab_size=loaded.model.config.vocab_size,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=max(1, width // 128),
        head_dim=64,
        intermediate_size=3 * width,
        max_position_embeddings=context,
    )
    model = Decoder(config)
    model.initialize(torch.Generator().manual_seed(0), 1.0, "depth")
    for path in output.path("tokenizer.json").parent.glob("*token*"):
        shutil.copyfile(path, folder / path.name)
    hf_export.save(model, loaded.symbols, folder)
    return str(folder)


def timed(name: str, characters: int, rounds: int, runs: dict[str, Callable[[], float]]) -> dict[str, float]:
    """The lowest CPU-seconds of each, run in turns; prints them, and the wall-seconds of the same round."""
    best: dict[str, tuple[float, float]] = {}
    bits = {label: run() for label, run in runs.items()}  # warm
    for _ in range(rounds):
        for label, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            took = time.process_time() - cpu, time.perf_counter() - wall
            best[label] = min(best.get(label, took), took)
    for label, (cpu, wall) in best.items():
        print(
            f"{name:8} {label:24} {cpu:7.2f} CPU s {wall:7.2f} s {characters / cpu:8.0f} characters/CPU s "
            f"{bits[label] / characters:8.4f} bits each",
            flush=True,
        )
    return {label: cpu for label, (cpu, _) in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--channel", default="demo")
    parser.add_argument("--documents", type=int, default=40, help="of each genre")
    parser.add_argument("--harness", action="store_true", help="also time lm-evaluation-harness")
    parser.add_argument("--harness-batch", nargs="+", default=["1", "16"], help="its batch sizes; it takes 1")
    parser.add_argument("--shape", type=int, nargs=3, metavar=("WIDTH", "LAYERS", "CONTEXT"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    store = open_store(args.store)
    output, evaluation_set = (
        open_reference(store, read_pointer(store, args.channel, n)) for n in ("train", "evaluation_set")
    )
    loaded = load_model(output)
    folder = str(output.path("config.json").parent)
    if args.shape:
        folder = of_shape(output, loaded, *args.shape)
        loaded = LoadedModel(output, hf_export.load(Path(folder))[0], loaded.symbols, loaded.tokenizer)
    texts = [d.text for d in first_of_each_genre(read_split(evaluation_set, "test"), args.documents)]
    context = loaded.model.config.max_position_embeddings
    pairs = halves(loaded, texts, context)
    print(
        f"{len(texts)} documents, {sum(map(len, texts))} characters, context {context}, "
        f"{sum(p.numel() for p in loaded.model.parameters()) / 1e6:.1f} M parameters, "
        f"torch {torch.__version__}, {args.threads} threads"
    )
    roll: dict[str, Callable[[], float]] = {
        "yanmo": lambda: rolling(loaded, texts, args.threads),
        "yanmo, no overlap": lambda: rolling(loaded, texts, args.threads, context),
    }
    asked = choices(pairs)
    answer: dict[str, Callable[[], float]] = {"yanmo": lambda: answers(loaded, pairs, args.threads)}
    choice: dict[str, Callable[[], float]] = {"yanmo": lambda: answers(loaded, asked, args.threads)}
    for batch in args.harness_batch if args.harness else []:
        theirs = harness(folder, context, batch)
        roll[f"lm-eval, batch {batch}"] = lambda run=theirs[0]: run(texts)  # type: ignore[misc]
        answer[f"lm-eval, batch {batch}"] = lambda run=theirs[1]: run(pairs)  # type: ignore[misc]
        choice[f"lm-eval, batch {batch}"] = lambda run=theirs[1]: run(asked)  # type: ignore[misc]
    for name, characters, runs in (
        ("rolling", sum(map(len, texts)), roll),
        ("answers", sum(len(b) for _, b in pairs), answer),
        ("choices", sum(len(b) for _, b in asked), choice),
    ):
        took = timed(name, characters, args.rounds, runs)
        for ours in (label for label in took if label.startswith("yanmo")):
            for other in (label for label in took if label.startswith("lm-eval")):
                print(f"{name}: {ours} is {took[other] / took[ours]:.2f} times as fast as {other}")


if __name__ == "__main__":
    main()
