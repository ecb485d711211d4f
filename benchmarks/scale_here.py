"""The machine that was measured, fitted to a few of its figures, and what it predicts for all others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scale_cells import CELLS, VOCABULARY, options_of
from scale_machine import Machine
from scale_model import PASSES, Sent, collective_seconds, predict, tensors

from yanmo.train.memory.estimate import activations
from yanmo.train.metrics.utilization import flops_per_token
from yanmo.train.models.first_decoder import decoder_config

MEASURED = Path(__file__).parent / "scale_measured.json"
FITTED_CELLS = ("narrow, 64", "narrow, 256", "wide, 64")
"""Of one rank: they give FLOP/s, bandwidth and overhead. Every cell of 2 and 4 ranks is held out."""
FETCHING = ("narrow, 64, ZeRO-3", "narrow, 64")
"""Of one rank: what the first takes longer than the second is ZeRO-3's work for each tensor."""
FITTED_RANKS = 2
"""Collectives of two ranks give latency and bandwidth of the network; those of four are held out."""


def read() -> dict[str, Any] | None:
    """What `--measure` wrote; None before it did."""
    return json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else None


def machine_here(found: dict[str, Any]) -> Machine:
    """Two cores that share a memory, and a network through it."""
    flops, kept, moved = _compute(found), _kept(found), _update(found)
    call, hop, byte = _network(found)
    return Machine(
        name="here",
        device="cpu",
        peak_flops=flops,
        full_share=1.0,
        memory_gib=24.0,
        memory_bandwidth=1 / moved[1],
        kept_bandwidth=kept,
        link_bandwidth=1 / byte,
        link_share=1.0,
        link_latency=hop,
        call_latency=call,
        exchange_latency=found["exchange"][str(FITTED_RANKS)] / (FITTED_RANKS - 1),
        step_overhead=moved[0],
        fetch_overhead=max(0.0, _longer(found) / tensors(options_of(CELLS[FETCHING[0]], 1))),
        cores=found["about"]["cores"],
        crowding=max(1.0, float(np.mean(list(found["crowding"].values())))),
    )


def _not_negative(rows: list[list[float]], seconds: list[float]) -> NDArray[np.float64]:
    """Least squares of relative errors, with no factor below 0."""
    a, t = np.array(rows, np.float64), np.array(seconds, np.float64)
    used = list(range(a.shape[1]))
    while True:
        scaled = a[:, used] / t[:, None]
        size = np.abs(scaled).max(0)
        found = np.linalg.lstsq(scaled / size, np.ones(len(t)), rcond=None)[0] / size
        if (found >= 0).all() or len(used) == 1:
            result = np.zeros(a.shape[1])
            result[used] = np.maximum(found, 0)
            return result
        del used[int(np.argmin(found * size))]


def _forward(found: dict[str, Any]) -> NDArray[np.float64]:
    """Seconds per FLOP, and per byte of kept activations."""
    rows, seconds = [], []
    for name in FITTED_CELLS:
        o = options_of(CELLS[name], 1)
        flops = o.batch_rows * o.context * flops_per_token(decoder_config(o, VOCABULARY), o.context)
        kept = activations(o, VOCABULARY, o.micro_rows, 4, "cpu")
        rows.append([flops, float(kept)])
        seconds.append(found["cells"][name]["1"]["compute"])
    return _not_negative(rows, seconds)


def _compute(found: dict[str, Any]) -> float:
    return 1 / max(_forward(found)[0], 1e-15)


def _kept(found: dict[str, Any]) -> float:
    per_byte = _forward(found)[1]
    return 1 / per_byte if per_byte else float("inf")


def _update(found: dict[str, Any]) -> NDArray[np.float64]:
    """Seconds of a step without any parameter, and per byte of states moved."""
    rows, seconds = [], []
    for name in FITTED_CELLS:
        o, cell = options_of(CELLS[name], 1), found["cells"][name]["1"]
        rows.append([1.0, 44.0 * o.num_parameters(VOCABULARY)])
        seconds.append(cell["seconds"] - cell["compute"])
    return _not_negative(rows, seconds)


def _longer(found: dict[str, Any]) -> float:
    one, other = (found["cells"][name]["1"]["seconds"] for name in FETCHING)
    return float(one - other)


def _network(found: dict[str, Any]) -> NDArray[np.float64]:
    """Seconds of a call, of a hop, and per byte on the wire."""
    rows, seconds = [], []
    for one in found["sends"]:
        if one["ranks"] == FITTED_RANKS:
            passes = PASSES[one["kind"]]
            hops = FITTED_RANKS - 1
            rows.append([1.0, passes * hops, passes * one["bytes"] * hops / FITTED_RANKS])
            seconds.append(one["seconds"])
    return _not_negative(rows, seconds)


@dataclass(frozen=True)
class Compared:
    """A measured step beside the predicted one."""

    cell: str
    ranks: int
    measured: float
    predicted: float
    is_fitted: bool

    @property
    def error(self) -> float:
        """Of the prediction: 0.1 is 10 % too slow."""
        return self.predicted / self.measured - 1


def compare_steps(found: dict[str, Any]) -> list[Compared]:
    """Every cell."""
    machine = machine_here(found)
    return [
        Compared(
            name,
            int(ranks),
            figures["seconds"],
            predict(options_of(CELLS[name], int(ranks)), VOCABULARY, machine).seconds,
            name in (*FITTED_CELLS, FETCHING[0]) and ranks == "1",
        )
        for name, groups in found["cells"].items()
        for ranks, figures in groups.items()
    ]


def compare_sends(found: dict[str, Any]) -> list[Compared]:
    """Every collective."""
    machine = machine_here(found)
    return [
        Compared(
            f"{one['kind']}, {one['bytes']:,} B",
            one["ranks"],
            one["seconds"],
            collective_seconds(Sent("", one["kind"], one["bytes"], 1, False), one["ranks"], machine),
            one["ranks"] == FITTED_RANKS,
        )
        for one in found["sends"]
    ]
