"""Steps of training on the device beside the CPU's, and compiled layers beside eager ones.

Losses of a training drift apart from the first digit that a sum in another order changes, so tolerances are
measured: by what the same change of precision, or of the order of sums, does to the CPU's own steps.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
from collections.abc import Iterator
from typing import Any

import torch
from gpu_report import Measure, holds, skipped, within

from yanmo.formats.token_cache import TokenCache
from yanmo.model.decoder import Decoder
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer
from yanmo.train.backends import optimizer
from yanmo.train.backends.accelerator import prepare
from yanmo.train.backends.hardware import compile_problem
from yanmo.train.backends.loss_module import LossModule
from yanmo.train.backends.plain import open_engine
from yanmo.train.config import TrainConfig
from yanmo.train.models.decoders import decoder_config
from yanmo.train.worker import samples_of

STEPS, QUICK_STEPS = 50, 6
_FREQUENT = 100
_SHAPE = {"layers": 3, "width": 192, "heads": 3, "kv_heads": 1, "head_width": 64, "feed_forward": 512}
_QUICK = {"layers": 2, "width": 64, "heads": 2, "kv_heads": 1, "head_width": 32, "feed_forward": 96}


def alone() -> None:
    """Make this process rank 0 of 1, as torchrun would."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    names = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(names, MASTER_PORT=port)
    torch.set_num_threads(1 if (os.cpu_count() or 1) < 8 else 8)


def options(setting: Any, **changes: Any) -> TrainConfig:
    """A training of the prepared token cache; no fewer documents per row than there are."""
    values = {"batch_rows": 16, "context": 64, "ranks": 1, "start": "random"}
    values |= {"optimizer": "adamw", "adam_learning_rate": 1e-3, "device": setting.device}
    values |= {"backend": "torch", **(_QUICK if setting.quick else _SHAPE)}
    return TrainConfig(**{**values, **changes})


def cache_of(setting: Any) -> TokenCache:
    """The prepared token cache."""
    store = open_store(str(setting.prepared / "store"))
    return TokenCache.open(open_reference(store, read_pointer(store, "dev", "tokenize")))


def first_decoder(asked: TrainConfig, cache: TokenCache) -> Decoder:
    """The same weights for everybody."""
    torch.manual_seed(0)
    decoder = Decoder(decoder_config(asked, cache.vocab_size))
    decoder.initialize(torch.Generator().manual_seed(0), 0.5, "depth")
    return decoder


def engine_of(asked: TrainConfig, cache: TokenCache, device: str, *, tf32: bool = False) -> Any:
    """An engine that has trained nothing; its products in fp32 are exact, but for `tf32`."""
    decoder = first_decoder(asked, cache)
    prepare(decoder, asked, device)
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    return open_engine(decoder, asked, device)


def train(engine: Any, samples: Any, steps: range) -> list[float]:
    """Mean loss of each step, in nats."""
    rows, micro = engine.options.batch_rows, engine.options.micro_rows
    found = []
    for step in steps:
        batch = samples.batch(step * rows, rows)
        parts = [
            engine.accumulate(batch.rows(i, i + micro), batch.num_targets) for i in range(0, rows, micro)
        ]
        engine.step()
        found.append(float(sum(parts)) / batch.num_targets)
    return found


def furthest(one: list[float], other: list[float]) -> float:
    """The largest difference of two courses; NaN where one is."""
    return max((abs(a - b) for a, b in zip(one, other, strict=True)), key=lambda d: (d != d, d))


def steps(setting: Any) -> Iterator[Measure]:
    """Losses of 50 steps: fp32, TF32, bf16, Muon; each beside the CPU's; and that fp16 learns."""
    alone()
    device, count = setting.device, QUICK_STEPS if setting.quick else STEPS
    cache = cache_of(setting)
    samples = samples_of(options(setting), cache)

    def course(where: str, *, tf32: bool = False, rows: Any = samples, **changes: Any) -> list[float]:
        asked = options(setting, **{**changes, "device": where})
        return train(engine_of(asked, cache, where, tf32=tf32), rows, range(count))

    exact = course("cpu")
    order = furthest(exact, course("cpu", micro_batch=4))
    there = course(device)
    yield holds("the loss falls", there[-1] < there[0] - 0.1, f"{there[0]:.3f} to {there[-1]:.3f} nats")
    yield within(
        f"fp32, {count} steps, loss in nats",
        furthest(there, exact),
        max(10 * order, 1e-4),
        f"10 times what a micro batch of 4 rows changes on the CPU ({order:.1e}), 1e-4 at least",
    )
    drawn = samples_of(options(setting, frequent_tokens=_FREQUENT), cache)
    yield within(
        f"most positions with {_FREQUENT} logits, {count} steps, loss in nats",
        furthest(course(device, rows=drawn), course("cpu", rows=drawn)),
        max(10 * order, 1e-4),
        f"as fp32; {100 * drawn.frequent.covered:.0f} % of the text",
    )
    rough = furthest(exact, course("cpu", precision="bf16"))
    half = course(device, precision="bf16")
    yield within(
        f"bf16, {count} steps, loss in nats, from the CPU's fp32",
        furthest(half, exact),
        3 * rough + 1e-3,
        f"3 times what bf16 changes on the CPU ({rough:.1e})",
    )
    yield within(
        f"bf16, activations computed again, {count} steps, loss in nats",
        furthest(course(device, precision="bf16", gradient_checkpointing=True), half),
        3 * rough + 1e-3,
        "the same operations; flash attention's backward adds up in no fixed order",
    )
    if device == "cuda":
        scaled = course(device, precision="fp16")
        course_of = f"{scaled[0]:.3f} to {scaled[-1]:.3f} nats"
        yield holds("fp16, the loss falls", scaled[-1] < scaled[0] - 0.1, course_of)
        yield within(
            f"TF32, {count} steps, loss in nats",
            furthest(course(device, tf32=True), exact),
            3 * rough + 1e-3,
            "TF32 keeps 11 bits, bf16 8: as bf16",
        )
    muon = {"optimizer": "muon"}
    slow = course("cpu", **muon)
    plain = optimizer.orthogonalize
    optimizer.orthogonalize = lambda update, dtype: plain(update, torch.bfloat16)
    try:
        short = furthest(slow, course("cpu", **muon))
    finally:
        optimizer.orthogonalize = plain
    yield within(
        f"Muon, {count} steps, loss in nats",
        furthest(course(device, **muon), slow),
        max(3 * short, 1e-3),
        f"on a GPU it orthogonalizes in bf16: 3 times what that changes on the CPU ({short:.1e})",
    )


def waits(setting: Any) -> Iterator[Measure]:
    """That no step of the torch backend reads from the device, which would let it run empty."""
    if setting.device != "cuda":
        yield skipped("steps without a wait", "nothing waits for a CPU")
        return
    alone()
    cache = cache_of(setting)
    for changes in ({}, {"optimizer": "muon"}, {"frequent_tokens": _FREQUENT}, {"compile": True}):
        if changes.get("compile") and compile_problem("cuda"):
            continue
        asked = options(setting, precision="bf16", **changes)
        engine, samples = engine_of(asked, cache, "cuda"), samples_of(asked, cache)
        train(engine, samples, range(3))
        batch = samples.batch(48, 16)
        torch.cuda.set_sync_debug_mode("error")
        try:
            said = ""
            for _ in range(3):
                engine.accumulate(batch, batch.num_targets)
                engine.step()
        except RuntimeError as error:
            said = str(error).partition("\n")[0]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        label = ", ".join(f"{name}={value}" for name, value in changes.items()) or "AdamW"
        yield holds(f"{label}: no step waits", not said, said or "torch.cuda.set_sync_debug_mode")


def compiled(setting: Any) -> Iterator[Measure]:
    """Loss and gradients of compiled layers beside eager ones, over rows of few and of many documents."""
    device = setting.device
    problem = compile_problem(device)
    if device == "cpu":
        problem = "takes half a minute on a CPU; tests/components/train/backends/test_accelerator.py does it"
    if problem:
        yield skipped("compiled layers", problem)
        return
    alone()
    cache = cache_of(setting)
    limits = _Limits()
    logging.getLogger("torch._dynamo").addHandler(limits)
    for precision, tolerance, reason in (
        ("fp32", 1e-4, "fused operations sum in another order"),
        ("bf16", 2e-2, "fused operations keep in fp32 what eager ones round to bf16"),
    ):
        # 12 layers: more than the 8 times that dynamo compiles one function before it gives up.
        asked = options(setting, precision=precision, layers=12, gradient_checkpointing=False)
        found = [_gradients(asked, cache, on, device) for on in (False, True)]
        losses = [abs(a[0] - b[0]) for a, b in zip(*found, strict=True)]
        yield within(f"{precision}, loss in nats", max(losses), tolerance, reason)
        worst = max(
            float((a[1][n] - b[1][n]).norm() / a[1][n].norm().clamp(min=1e-6))
            for a, b in zip(*found, strict=True)
            for n in a[1]
        )
        yield within(f"{precision}, gradients, relative", worst, 10 * tolerance, f"{reason}, over 12 layers")
    said = limits.said
    yield holds("12 layers stay compiled", not said, said or "dynamo never gave up compiling")


class _Limits(logging.Handler):
    """Remembers dynamo's word that it gives up compiling a function, which trains on, eager and slow."""

    said = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "recompile_limit" in text or "cache_size_limit" in text:
            self.said = text.splitlines()[0][:160]


def _gradients(
    asked: TrainConfig, cache: TokenCache, on: bool, device: str
) -> list[tuple[float, dict[str, torch.Tensor]]]:
    """(loss, gradients) of three batches."""
    asked = dataclasses.replace(asked, compile=on)
    decoder = first_decoder(asked, cache).to(
        device, torch.bfloat16 if asked.precision == "bf16" else torch.float32
    )
    prepare(decoder, asked, device)
    module, samples, found = LossModule(decoder), samples_of(asked, cache), []
    for number in (0, 16, 48):
        batch = samples.batch(number, 16)
        ids, segments, targets = (
            torch.from_numpy(x).to(device) for x in (batch.ids_BT, batch.segments_BT, batch.targets_BT)
        )
        decoder.zero_grad()
        loss = module(ids, segments, targets, 1 / batch.num_targets)
        loss.backward()
        gradients = {n: p.grad.float() for n, p in decoder.named_parameters() if p.grad is not None}
        found.append((float(loss.detach()), {n: g.clone() for n, g in gradients.items()}))
    return found
