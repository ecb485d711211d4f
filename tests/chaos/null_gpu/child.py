"""Run as a process that sees the card: `child.py WHAT [ARGUMENT ...]`. Its last line is the answer."""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import yanmo.model.scoring as scoring_module
from chaos.null_gpu import counts, kernels
from yanmo.common.errors import EnvironmentFault
from yanmo.evaluate.document_bits import on_devices
from yanmo.model.decoder import Decoder
from yanmo.model.scoring import token_bits
from yanmo.options.command_line import load
from yanmo.train.backends.accelerator import prepare
from yanmo.train.backends.engine import Engine
from yanmo.train.backends.optimizer import fast_products
from yanmo.train.backends.plain import open_engine
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch
from yanmo.train.memory.estimate import estimate
from yanmo.train.models.decoders import decoder_config
from yanmo.train.row_draws import FrequentTokens

VOCABULARY = 8192
TINY = "--layers=2 --width=64 --heads=4 --kv-heads=2 --head-width=16 --feed-forward=128 --context=64"


def options_of(text: str) -> TrainConfig:
    """The options of a training, in bf16 and not compiled where nothing else is said."""
    words = text.split()
    for name, value in (("precision", "bf16"), ("compile", "false")):
        if not any(word.startswith(f"--{name}") for word in words):
            words.append(f"--{name}={value}")
    if not any(word.startswith("--batch-rows") for word in words):
        words.append("--batch-rows=32")
    return load(TrainConfig, ["--ranks=1", "--device=cuda", "--monitor=off", *words], "child.py")


def engine_of(options: TrainConfig, vocabulary: int = VOCABULARY, device: str = "cuda") -> Engine:
    """A new engine; its weights are drawn from the options' seed."""
    decoder = Decoder(decoder_config(options, vocabulary))
    decoder.initialize(torch.Generator().manual_seed(options.seed), 0.02)
    prepare(decoder, options, device)
    return open_engine(decoder, options, device)


def rows_of(options: TrainConfig, vocabulary: int = VOCABULARY, seed: int = 0) -> Batch:
    """Rows of a micro batch, of documents of 100 tokens each (one where a row holds one)."""
    shape = (options.micro_rows, options.context)
    ids = np.random.default_rng(seed).integers(0, vocabulary, (shape[0], shape[1] + 1))
    length = shape[1] if options.packing == "one" else 100
    segments = np.broadcast_to(np.arange(shape[1]) // length + 1, shape)
    rows = Batch(ids[:, :-1], ids[:, 1:], np.ascontiguousarray(segments))
    if not options.frequent_tokens:
        return rows
    text: Any = SimpleNamespace(vocab_size=vocabulary, tokens=[ids.ravel()], shard=np.zeros(1, np.int64))
    frequent = FrequentTokens(text, text, options.frequent_tokens, seed)
    kinds = np.stack([frequent.kinds(row, at) for at, row in enumerate(rows.targets_BT)])
    return replace(rows, kinds_BT=kinds, frequent=frequent)


def peaks(backend: str, *settings: str) -> dict[str, Any]:
    """Of each setting what the estimate says and what torch's allocator held at most, without the context."""
    found = {}
    for setting in settings:
        options = options_of(f"{setting} --backend={backend}")
        engine, rows, held = engine_of(options), rows_of(options), []
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            engine.accumulate(rows, rows.num_targets)
            engine.step()
            held.append(torch.cuda.max_memory_allocated())
        said = estimate(options, VOCABULARY, "cuda")
        found[setting] = said.total - said.base, max(held)
        del engine
        gc.collect()
        torch.cuda.empty_cache()
    return {"peaks": found, "kernels": sum(name.startswith("triton_") for name in kernels())}


def step(backend: str) -> dict[str, Any]:
    """What a forward and backward, and an update, make the host wait for."""
    options = options_of(f"--size=small --micro-batch=4 --backend={backend}")
    engine, rows = engine_of(options), rows_of(options)
    found: dict[str, Any] = {}
    for _ in range(3):  # the first ones make what is kept
        for name, call in (
            ("backward", lambda: engine.accumulate(rows, rows.num_targets)),
            ("step", engine.step),
        ):
            before = counts()
            call()
            after = counts()
            kept = ("waits", "pageable_copies", "copies_out")
            found[name] = {key: after[key] - before[key] for key in kept}
    return found


def scoring() -> dict[str, Any]:
    """How often scoring waits, by batches, of documents of many lengths."""
    options = options_of("--size=small")
    decoder = Decoder(decoder_config(options, VOCABULARY))
    prepare(decoder, options, "cuda")
    decoder.to("cuda", torch.bfloat16).eval()
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, VOCABULARY, n) for n in rng.integers(2, 400, 64)]
    scoring_module._NOTHING = 0.0  # else a card that computes nothing is refused
    batches, before = [], counts()
    token_bits(decoder, documents, batch_tokens=2048, each_batch=lambda: batches.append(1))
    return {"batches": len(batches), "waits": counts()["waits"] - before["waits"]}


def copies() -> dict[str, Any]:
    """Bytes of a model whose matrices are joined, and what its copy on the card takes."""
    decoder = Decoder(decoder_config(options_of("--size=small"), VOCABULARY))
    decoder.fuse()
    every = [tensor.untyped_storage() for tensor in (*decoder.parameters(), decoder.rotary)]
    (_,) = on_devices(decoder, "cuda")
    gc.collect()
    held = sum({storage.data_ptr(): storage.nbytes() for storage in every}.values())
    return {"model": held, "card": torch.cuda.memory_allocated()}


def no_score() -> dict[str, Any]:
    """What scoring says of a card on which no kernel writes anything."""
    decoder = Decoder(decoder_config(options_of("--size=small"), VOCABULARY))
    decoder.to("cuda", torch.bfloat16).eval()
    try:
        token_bits(decoder, [np.arange(250)])
    except EnvironmentFault as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {"error": "", "text": ""}


def losses(half: str) -> dict[str, Any]:
    """Losses of a few steps on the card and on the CPU, in fp32 and in this precision of 16 bits."""
    found: dict[str, Any] = {"cuda": {}, "cpu": {}}
    products = str(fast_products(torch.device("cuda", 0)))  # of Muon
    for backend, precision, more in (
        ("torch", "fp32", "--optimizer=adamw"),
        ("torch", half, "--optimizer=muon"),
        ("torch", half, "--optimizer=muon --frequent-tokens=64"),
    ):
        options = options_of(f"{TINY} --batch-rows=4 --backend={backend} --precision={precision} {more}")
        rows = rows_of(options, 256)
        for device in found:
            engine, course = engine_of(options, 256, device), []
            for _ in range(6):
                engine.set_learning_rate(1.0)
                course.append(float(engine.accumulate(rows, rows.num_targets)))
                engine.step()
            found[device][f"{backend} {precision} {more}".replace(" --optimizer=adamw", "")] = course
            del engine
    return found | {"products": products}


def out_of_memory() -> dict[str, Any]:
    """What torch says when the card is full, and that smaller things fit then."""
    try:
        torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:
        refused = type(error).__name__
    kept = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
    return {"refused": refused, "then": kept.numel()}


def main(what: str, *arguments: str) -> None:
    """Answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(ranks, MASTER_PORT=port)
    print(json.dumps(globals()[what](*arguments)), flush=True)
    os._exit(0)  # NCCL's threads have nothing to say


if __name__ == "__main__":
    main(*sys.argv[1:])
