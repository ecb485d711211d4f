"""DeepSpeed's stages beside the torch backend on the device, and checkpoints carried to the CPU.

One GPU is one rank: what the stages share out lies on that rank whole. That several ranks agree is tested on
CPUs (tests/components/train/test_two_ranks.py).
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from gpu_report import Measure, holds, within
from gpu_steps import alone, cache_of, engine_of, furthest, options, train

from yanmo.train.backends.zero import import_deepspeed
from yanmo.train.checkpoints import checkpoint
from yanmo.train.checkpoints.checkpoint import Position
from yanmo.train.worker import samples_of

_CLIP = 0.1
"""Small, so that all steps are clipped: ZeRO's own clipping is compared too."""
_TOLERANCES = {
    "fp32": (1e-3, "sums in another order"),
    "bf16": (
        0.1,
        "bf16 rounds activations and gradients of other buckets to 8 bits, as on CPUs in test_engine.py",
    ),
    "fp16": (0.02, "fp16 keeps 11 bits, and both begin with the same loss scale"),
}
_OF_MUON = 0.05, "Muon orthogonalizes in bf16 on a GPU: what sums in another order change, it makes 2^-8"
"""The least tolerance of its weights: with a CPU's bf16 in the place of a GPU's (benchmarks/NOTES.md,
"Without a GPU") they differed by 0.005 to 0.012, though losses differed by 4e-4 at most."""
_STAGES: list[dict[str, Any]] = [{"backend": "deepspeed", "zero_stage": stage} for stage in (1, 2, 3)]


def zero(setting: Any) -> Iterator[Measure]:
    """Losses and weights after some steps, and that a state goes on in the torch backend."""
    alone()
    import_deepspeed(setting.device)
    cache = cache_of(setting)
    count = 4 if setting.quick else 12
    for precision, (tolerance, reason) in _TOLERANCES.items():
        if precision == "fp16" and setting.device != "cuda":  # DeepSpeed has it on GPUs only
            continue
        for optimizer in ("adamw",) if setting.quick else ("adamw", "muon"):
            common = {"precision": precision, "optimizer": optimizer, "clip": _CLIP, "micro_batch": 8}
            asked = options(setting, **common)
            samples = samples_of(asked, cache)
            plain = engine_of(asked, cache, setting.device)
            start = copy.deepcopy(plain.full_weights())
            losses = train(plain, samples, range(count))
            weights = copy.deepcopy(plain.full_weights())
            moved, plain_scale = _distance(weights, start), plain.loss_scale().get("scale")
            goes_on = train(plain, samples, range(count, count + 3))
            for stage in _stages(setting):
                name = f"ZeRO-{stage['zero_stage']}{', offload' if 'offload' in stage else ''}"
                label = f"{name}, {precision}, {optimizer}"
                engine = engine_of(options(setting, **{**common, **stage}), cache, setting.device)
                found = train(engine, samples, range(count))
                yield within(f"{label}, loss in nats", furthest(found, losses), tolerance, reason)
                far = _distance(engine.full_weights(), weights) / moved
                most = max((tolerance, reason), _OF_MUON) if optimizer == "muon" else (tolerance, reason)
                yield within(f"{label}, weights by how far they went", far, *most)
                if precision == "fp16":
                    scales = engine.loss_scale()["scale"], plain_scale
                    yield holds(f"{label}, the loss scale", scales[0] == scales[1], f"{scales[0]:g}")
                other = engine_of(asked, cache, setting.device)
                _hand_over(engine, other)
                differs = furthest(train(other, samples, range(count, count + 3)), goes_on)
                yield within(f"{label}, its state goes on in torch, nats", differs, tolerance, reason)
                del engine, other


def _stages(setting: Any) -> list[dict[str, Any]]:
    extra = {"backend": "deepspeed", "zero_stage": 1, "offload": "optimizer"}
    return [*_STAGES, *([extra] if setting.device == "cuda" else [])]


def _distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return float(sum((one[n] - other[n]).double().square().sum() for n in one)) ** 0.5


def _state(engine: Any) -> dict[tuple[str, str], torch.Tensor]:
    pieces: dict[tuple[str, str], list[Any]] = {}
    for part in engine.parts():
        pieces.setdefault((part.name, part.kind), []).append(part)
    return {
        key: torch.cat([p.values.detach().cpu() for p in sorted(found, key=lambda p: p.start)])
        for key, found in pieces.items()
    }


def _hand_over(giver: Any, taker: Any) -> None:
    state = _state(giver)
    taker.restore(lambda name, kind, at, count: state[name, kind][at : at + count], giver.updates)
    taker.set_loss_scale(giver.loss_scale())


def checkpoints(setting: Any) -> Iterator[Measure]:
    """What was written from the device is read on the CPU to the last bit, and trains on."""
    alone()
    import_deepspeed(setting.device)
    cache = cache_of(setting)
    for stage in ({"backend": "torch"}, *_STAGES):
        asked = options(setting, precision="bf16", **stage)
        samples = samples_of(asked, cache)
        engine = engine_of(asked, cache, setting.device)
        train(engine, samples, range(4))
        with tempfile.TemporaryDirectory() as name:
            temporary, final = Path(name) / ".tmp-step", Path(name) / checkpoint.name_of(4)
            checkpoint.write_rank(temporary, 0, checkpoint.snapshot(engine))
            index = checkpoint.index_of(engine, Position(4, {"test": "1"}, {}))
            checkpoint.commit(temporary, final, index)
            here = engine_of(options(setting, precision="bf16", device="cpu"), cache, "cpu")
            checkpoint.load(here, final, {"test": "1"})
        label = f"{stage['backend']} {stage.get('zero_stage', '')}".strip()
        written, read = _state(engine), _state(here)
        equal = written.keys() == read.keys() and all(torch.equal(written[k], read[k]) for k in read)
        yield holds(f"{label}: weights and states", equal, f"{len(read)} tensors equal to the last bit")
        differs = furthest(train(engine, samples, range(4, 8)), train(here, samples, range(4, 8)))
        yield within(f"{label}: 4 further steps, nats", differs, 0.05, "bf16 on two devices, as in `steps`")
