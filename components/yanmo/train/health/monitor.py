"""The collapse monitor: every few steps it checks gradients, updates and, with full, the activations.

fast: norm of the gradient, and of the update relative to the weights, by layer, measured in a step that is
    made anyway; costs one pass over the gradient and one copy of the weights.
full: also the metrics of probes.py, which cost a forward pass over a few rows.
off: measures nothing and costs nothing.

A warning names the metric, the layer and what it means; it comes again only after the metric was good in
between. Thresholds:

    active_units < 0.5          more than half of the units are dormant; Sokar et al. 2023 (arXiv 2302.12902)
    effective_rank < 3          hidden states lie near a plane; our own (docs/reference/train.md)
    attention_entropy < 0.05    Zhai et al. 2023 (arXiv 2303.06296): training diverges where it falls to 0
    output_entropy < 0.01       nearly all probability is on one token
    update_ratio > 0.5          norm of the update over that of the weights; 1e-3 is usual (Karpathy, CS231n)
    relative_grad_norm < 1e-6   grad_norm over that of the layer with the largest: the gradient has vanished
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from yanmo.train.backends.engine import WEIGHT, Engine, Part
from yanmo.train.backends.process_group import Collectives
from yanmo.train.data import Batch
from yanmo.train.health.probes import look_inside

log = logging.getLogger(__name__)

PROBE_ROWS = 4
"""Rows of the batch that the metrics of probes.py are measured on."""
_LAYER = re.compile(r"\blayers\.(\d+)\.")
_BAD: dict[str, tuple[Callable[[float], bool], str]] = {
    "active_units": (lambda x: x < 0.5, "more than half of the units are dormant"),
    "effective_rank": (lambda x: x < 3, "hidden states have collapsed onto a few directions"),
    "attention_entropy": (lambda x: x < 0.05, "heads look at single positions"),
    "output_entropy": (lambda x: x < 0.01, "each prediction is of a single token"),
    "update_ratio": (
        lambda x: x > 0.5,
        "updates are as large as half of the weights; lower the learning rate",
    ),
    "relative_grad_norm": (lambda x: x < 1e-6, "the gradient has vanished"),
}


class Monitor:
    """Watches one engine; all ranks call every method together."""

    def __init__(
        self, engine: Engine, collectives: Collectives, mode: str, every: int, warmup_steps: int
    ) -> None:
        """Args:
        mode: full, fast or off.
        every: steps between two measurements.
        warmup_steps: steps without warnings: weights that begin at zero change by more than their norm.
        """
        self._engine, self._collectives = engine, collectives
        self._mode, self._every, self._quiet = mode, every, warmup_steps
        self._layers = _layers_of(engine)
        self._before: dict[tuple[str, int], Tensor] = {}
        self._gradient: dict[str, Tensor] = {}
        self._warned: set[tuple[str, str]] = set()

    def begin(self, step: int) -> bool:
        """Call before an update: prepares for a step to be measured; returns whether this one is."""
        if self._mode == "off" or step % self._every:
            return False
        self._before = {(p.name, p.start): p.values.clone() for p in self._weights()}
        self._gradient = {}
        self._engine.observer = self._observe
        return True

    def end(self, step: int, rows: Batch) -> dict[str, Any]:
        """Call after the update: returns the metrics by layer, and warns about bad ones.

        Args:
            rows: the global batch, for `full`; the same on every rank.
        """
        self._engine.observer = None
        found = self._step_metrics()
        self._before = {}
        if self._mode == "full":
            found |= self._probe_metrics(rows.rows(0, PROBE_ROWS))
        if step > self._quiet:
            self._warn(step, found)
        return found

    def _weights(self) -> list[Part]:
        return [part for part in self._engine.parts() if part.kind == WEIGHT]

    def _observe(self, gradients: list[Part]) -> None:
        if self._engine.backend == "torch" and self._engine.rank:
            return  # each rank has all of it
        for part in gradients:
            square = part.values.float().square().sum()
            self._gradient[part.name] = self._gradient.get(part.name, 0.0) + square

    def _step_metrics(self) -> dict[str, Any]:
        """Return the norm of the gradient, and of the update relative to the weights, by layer."""
        count = len(self._layers)
        squares = torch.zeros(3, count, dtype=torch.float64)
        for name, square in self._gradient.items():
            squares[0, self._layers[_layer(name)]] += float(square)
        for part in self._weights():
            before, at = self._before[part.name, part.start], self._layers[_layer(part.name)]
            squares[1, at] += float((part.values - before).square().sum())
            squares[2, at] += float(before.square().sum())
        total = np.array(self._collectives.sums(squares.flatten())).reshape(3, count)
        norms = np.sqrt(total)
        ratio = norms[1] / np.maximum(norms[2], 1e-12)
        return {
            "grad_norm": dict(zip(self._layers, map(_rounded, norms[0]), strict=True)),
            "update_ratio": dict(zip(self._layers, map(_rounded, ratio), strict=True)),
        }

    def _probe_metrics(self, rows: Batch) -> dict[str, Any]:
        """Return the metrics of probes.py by layer; empty on ranks other than 0."""
        found: dict[str, Any] = {}
        with self._engine.scoring() as decoder:
            if self._engine.rank == 0:
                ids, segments = (
                    torch.from_numpy(x).to(self._engine.device) for x in (rows.ids_BT, rows.segments_BT)
                )
                found = look_inside(decoder, ids, segments)
        names = [layer for layer in self._layers if layer.isdigit()]
        return {
            metric: _rounded(value)
            if isinstance(value, float)
            else dict(zip(names, map(_rounded, value), strict=True))
            for metric, value in found.items()
        }

    def _warn(self, step: int, found: dict[str, Any]) -> None:
        if self._engine.rank:
            return
        shown = dict(found)
        norms = {layer: norm or 0.0 for layer, norm in found["grad_norm"].items()}
        largest = max(norms.values())
        if largest > 0:
            shown["relative_grad_norm"] = {layer: norm / largest for layer, norm in norms.items()}
        for metric, (is_bad, meaning) in _BAD.items():
            values = shown.get(metric, {})
            for layer, value in (values if isinstance(values, dict) else {"": values}).items():
                if value is None or not is_bad(value):
                    self._warned.discard((metric, layer))
                elif (metric, layer) not in self._warned:
                    self._warned.add((metric, layer))
                    where = f"layer {layer}: " if layer.isdigit() else f"{layer}: " if layer else ""
                    log.warning("step %d, %s%s=%.3g: %s", step, where, metric, value, meaning)


def _layer(name: str) -> str:
    """Return the name under which a parameter is measured: the number of its layer, embedding, head or
    norm."""
    number = _LAYER.search(name)
    if number:
        return number.group(1)
    if "embed_tokens" in name:
        return "embedding"
    return "head" if "lm_head" in name else "norm"


def _layers_of(engine: Engine) -> dict[str, int]:
    """Layer -> its index, the same on every rank and in every ZeRO stage."""
    names = dict.fromkeys(_layer(name) for name, p in engine.decoder.named_parameters() if p.requires_grad)
    return {layer: place for place, layer in enumerate(names)}


def _rounded(value: float) -> float | None:
    """Return the value with four significant digits; None for one that JSON cannot hold."""
    value = float(value)
    return float(f"{value:.4g}") if math.isfinite(value) else None
