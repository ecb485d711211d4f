"""From parameters and GPUs to options of `yanmo train`: a shape, and the fastest way that fits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from scale_machine import Machine
from scale_model import OURS, Engine, Prediction, checkpoint_bytes, predict
from scale_prices import Prices

from yanmo.options.command_line import load
from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import FREE_SHARE, estimate, largest_that_fits
from yanmo.train.options.model_options import num_parameters

_KNOWN = ((1.1e8, 16, 768), (3.4e8, 24, 1024), (1.2e9, 24, 2048), (6.7e9, 32, 4096), (1.3e10, 40, 5120))
_LARGEST = (6.9e10, 80, 8192)
"""Parameters, layers, width: medium and large of `yanmo train`, then GPT-3's and Llama 2's shapes."""
_HEAD = 128


def shape(parameters: float, vocab_size: int) -> dict[str, int]:
    """Layers and widths of a model of about so many parameters, as options of `yanmo train`.

    Depth and width follow published models. The width is a multiple of 128 (of 1,024 from 4,096 on), the
    feed-forward 2.75 times as wide; from 2e10 parameters on there is a key head for eight query heads.
    """
    known = [*_KNOWN, _LARGEST]
    logs = [math.log(p) for p, _, _ in known]
    at = min(max(math.log(parameters), logs[0]), logs[-1])
    i = next(i for i in range(len(known) - 1) if at <= logs[i + 1])
    part = (at - logs[i]) / (logs[i + 1] - logs[i])
    guide = known[i][1] * (known[i + 1][1] / known[i][1]) ** part

    def of(width: int) -> dict[str, int]:
        heads = width // _HEAD
        keys = heads // 8 if parameters >= 2e10 and heads % 8 == 0 else heads
        ff = round(2.75 * width / _HEAD) * _HEAD
        found = {"width": width, "heads": heads, "kv_heads": keys, "head_width": _HEAD, "feed_forward": ff}
        one, two = (num_parameters({**found, "layers": n}, vocab_size) for n in (1, 2))
        return {"layers": max(1, round((parameters - one) / (two - one)) + 1), **found}

    def strangeness(found: dict[str, int]) -> float:
        away = abs(math.log(num_parameters(dict(found), vocab_size) / parameters))
        return abs(math.log(found["layers"] / guide)) + 10 * max(0.0, away - 0.05)

    widths = [w for w in range(_HEAD, 33 * 1024, _HEAD) if w < 4096 or w % 1024 == 0]
    return min((of(w) for w in widths), key=strangeness)


SAME = 1.03
"""Ways that differ by less are as fast as each other."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is to be trained, whatever trains it."""

    shape: dict[str, int]
    vocab_size: int = 32_768
    context: int = 4096
    batch_tokens: int = 0
    """Of a step; 0 takes GPT-3's for each size (arXiv 2005.14165, table 2.1), and 4 M from 2e10 on."""
    tokens: float = 0.0
    """To train on; 0 takes 20 for each parameter."""
    optimizer: str = "adamw"
    valid_characters: int = 0
    checkpoint_seconds: float = 600.0

    @property
    def parameters(self) -> int:
        """Embedding and head counted in full."""
        return num_parameters(dict(self.shape), self.vocab_size)

    @property
    def all_tokens(self) -> float:
        """To train on."""
        return self.tokens or 20.0 * self.parameters

    @property
    def rows(self) -> int:
        """Of a batch."""
        sizes = ((1e9, 2**19), (5e9, 2**20), (2e10, 2**21), (math.inf, 2**22))
        by_size = next(tokens for below, tokens in sizes if self.parameters < below)
        return max(1, (self.batch_tokens or by_size) // self.context)

    def options(self, ranks: int, machine: Machine) -> TrainConfig:
        """Of `yanmo train`, with one row per forward; the batch is rounded to whole rows of each rank."""
        rows = max(1, round(self.rows / ranks)) * ranks
        flags = {
            **self.shape,
            "context": self.context,
            "batch_rows": rows,
            "ranks": ranks,
            "micro_batch": 1,
            "optimizer": self.optimizer,
            "precision": "bf16",
            "device": "cuda",
            "attention": "varlen",
            "backend": "deepspeed",
            "memory_gib": machine.memory_gib,
            "valid_characters": self.valid_characters,
            "steps": max(1, round(self.all_tokens / (rows * self.context))),
            "frequent_tokens": 0,  # which the default size, tiny, has
        }
        return load(TrainConfig, [f"--{n.replace('_', '-')}={v}" for n, v in flags.items()], "scale")


@dataclass(frozen=True)
class Plan:
    """The fastest way that fits, for a number of GPUs."""

    case: Case
    options: TrainConfig
    machine: Machine
    step: Prediction

    @property
    def ranks(self) -> int:
        return self.options.ranks

    @property
    def tokens_per_second(self) -> float:
        """While it trains; without checkpoints and failures."""
        return self.step.tokens / self.step.seconds

    @property
    def saving(self) -> float:
        """Share of the time that stands still while a checkpoint is copied to the node's memory."""
        copied = (
            checkpoint_bytes(self.options, self.case.vocab_size) / self.ranks / self.machine.host_bandwidth
        )
        return copied / self.case.checkpoint_seconds

    @property
    def failing(self) -> float:
        """Share of the time that failures cost: half an interval of checkpoints each, and the restart."""
        between = 3600 * self.machine.failure_hours / self.ranks
        return (self.case.checkpoint_seconds / 2 + self.machine.restart_seconds) / between

    @property
    def seconds(self) -> float:
        """Of the whole training."""
        steps = self.case.all_tokens / self.step.tokens
        return steps * self.step.seconds * (1 + self.saving) * (1 + self.failing)

    @property
    def gpu_hours(self) -> float:
        return self.seconds / 3600 * self.ranks

    @property
    def kwh(self) -> float:
        """Of the devices alone, as if always at their limit."""
        return self.gpu_hours * self.machine.watts / 1000

    @property
    def host_bytes(self) -> int:
        """Of a node's memory: its ranks' copies for checkpoints and the export."""
        return self.step.memory.host * min(self.ranks, self.machine.ranks_per_node)

    def cost(self, prices: Prices) -> float | None:
        """Money; None without prices."""
        return prices.of({"seconds": self.seconds, "gpu_hours": self.gpu_hours, "kwh": self.kwh})


def ways(
    case: Case, ranks: int, machine: Machine, stages: Iterable[int] = (1, 2, 3)
) -> Iterator[TrainConfig]:
    """Options that fit into a device's memory, by the estimate of `yanmo train`, each with the largest micro
    batch that fits."""
    asked = case.options(ranks, machine)
    for stage, again in itertools.product(stages, (False, True)):
        o = replace(asked, zero_stage=stage, gradient_checkpointing=again)
        o = replace(o, micro_batch=largest_that_fits(o, case.vocab_size, machine.device))
        need = estimate(o, case.vocab_size, machine.device).total
        if need <= FREE_SHARE * machine.memory_gib * 2**30:
            yield o


def best(
    case: Case,
    ranks: int,
    machine: Machine,
    stages: Iterable[int] = (1, 2, 3),
    engine: Engine = OURS,
) -> Plan | None:
    """The simplest of the fastest ways that fit: lowest stage, rather without recomputation.

    None where nothing fits, or where there are more GPUs than rows.
    """
    if ranks > case.rows:
        return None
    found = [
        Plan(case, o, machine, predict(o, case.vocab_size, machine, engine))
        for o in ways(case, ranks, machine, stages)
    ]
    limit = SAME * min((plan.step.seconds for plan in found), default=0.0)
    return next((plan for plan in found if plan.step.seconds <= limit), None)


def smallest(case: Case, machine: Machine, stage: int, again: bool, most: int = 1024) -> int | None:
    """The smallest number of GPUs, a power of two, that holds the training with one row per forward."""
    for ranks in (2**i for i in range(most.bit_length())):
        o = replace(case.options(ranks, machine), zero_stage=stage, gradient_checkpointing=again)
        if estimate(o, case.vocab_size, machine.device).total <= FREE_SHARE * machine.memory_gib * 2**30:
            return ranks
    return None


def pays(plans: list[Plan | None]) -> list[float | None]:
    """For each plan, what an added GPU gives of what one gave before: 1 is perfect; None for the first."""
    found: list[float | None] = []
    before: Plan | None = None
    for plan in plans:
        share = None
        if plan is not None and before is not None and plan.ranks > before.ranks:
            faster = plan.tokens_per_second / before.tokens_per_second - 1
            share = faster / (plan.ranks / before.ranks - 1)
        found.append(share)
        before = plan or before
    return found
