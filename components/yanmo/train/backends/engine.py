"""A decoder that can be trained, and its state: what the loop needs, and what both backends share.

    loop, checkpoint, validation  ->  Engine  <-  backends/zero.py   DeepSpeed, ZeRO-1, 2 and 3
                                              <-  backends/plain.py  torch alone: MPS, comparison

A step is one `accumulate` per micro batch, then `step`, or `skip` to drop the gradient. In between, no number
is read back from the device: losses stay tensors until they are needed.

The state is fp32 and by parameter, with every backend, ZeRO stage and number of ranks: `parts` are views of
what this rank owns, the parts of all ranks together hold everything exactly once, and `restore` reads a state
that was divided in any other way. The optimizer sees one flat fp32 tensor per group, `flats`; `pieces` say
which elements of which parameter lie where in it. So a step takes a few kernels however many tensors the
model has, and reading the state is slicing.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from yanmo.model.attention import document_bounds
from yanmo.model.decoder import Decoder
from yanmo.model.lora import adapt
from yanmo.train.backends import process_group
from yanmo.train.backends.loss_module import LossScale
from yanmo.train.backends.optimizer import MatrixAdamW, Piece, cut_places
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch
from yanmo.train.options.recipe_options import Rule
from yanmo.train.row_draws import DRAWN, DRAWN_SHARE, NEAR

WEIGHT = "weight"
"""Kind of a part that holds weights; the other kinds are optimizer states: Muon's `momentum_buffer`, AdamW's
`exp_avg` and `exp_avg_sq`."""


class Part(NamedTuple):
    """Consecutive elements of a parameter, or of one of its optimizer states, that this rank owns."""

    name: str
    """Name of the parameter, as in the exported model."""
    kind: str
    start: int
    """First element, counted in the flattened parameter."""
    values: Tensor
    """The elements, fp32, one dimension: a view of the state itself. Copy it before the next step."""


StateReader = Callable[[str, str, int, int], Tensor]
"""Reads a checkpoint: (parameter, kind, first element, number of elements) -> fp32 values, one dimension."""


def collective_timeout(options: TrainConfig) -> timedelta:
    """Time limit of collectives: longer than the watchdog's, whose message says more; without a watchdog ten
    years."""
    return timedelta(seconds=1.5 * options.hang_seconds + 60) if options.hang_seconds else timedelta(3650)


class Engine(ABC):
    """A decoder that can be trained: forward, backward, update, and its state.

    All methods but `set_learning_rate` and `parts` are called by all ranks together. A backend sets the
    attributes, calls `_locate`, and adds what is abstract here.
    """

    backend = ""
    """deepspeed or torch."""
    options: TrainConfig
    decoder: Decoder
    """The model of the forward pass. Under ZeRO-3 a layer has its weights only while it runs: read weights
    through `parts`, `full_weights` or `scoring`."""
    device: torch.device
    rank: int
    world_size: int
    optimizer: MatrixAdamW
    flats: list[Tensor]
    pieces: list[list[Piece]]

    def __init__(self) -> None:
        self._updates: int | Tensor = 0
        """May be a tensor on the device, so that only reading it waits."""
        self.forwarded: Callable[[], None] | None = None
        """Called between forward and backward pass of each micro batch, for timing; None calls nothing."""
        self._observer: Callable[[list[Part]], None] | None = None

    def _locate(self, flats: list[Tensor], pieces: list[list[Piece]]) -> None:
        """Tell the optimizer what lies where and what computes, and make its states before the first step."""
        self.flats, self.pieces = flats, pieces
        if self.device.type == "cuda":
            self.optimizer.orthogonalizes_on = self.device
        everyone = [pieces]
        if self.world_size > 1:
            own = [[dataclasses.astuple(piece) for piece in group] for group in pieces]
            everyone = [
                [
                    [Piece(name, torch.Size(shape), *numbers) for name, shape, *numbers in group]
                    for group in all_
                ]
                for all_ in process_group.gather(own, self.device)
            ]
        for i, flat in enumerate(flats):
            self.optimizer.locate(flat, pieces[i], cut_places(theirs[i] for theirs in everyone))
            self.optimizer.make_states(flat, self._rule(i))

    def _rule(self, i: int) -> Rule:
        rule: Rule = self.optimizer.param_groups[i]["rule"]
        return rule

    @abstractmethod
    def accumulate(self, rows: Batch, num_targets: int) -> Tensor:
        """Do one forward and backward pass, which adds to the gradient.

        Args:
            rows: rows of this rank.
            num_targets: targets in the global batch, so that the gradient is that of the batch's mean loss.

        Returns:
            The summed loss of these rows in nats: fp32, no dimensions, on the device, detached.
        """

    @abstractmethod
    def step(self) -> Tensor:
        """Reduce the gradient over ranks, clip it, update, and begin a new gradient.

        Returns:
            Whether the weights moved: bool, no dimensions, on the device. False, on all ranks alike, if the
            gradient was not finite; then neither weights nor optimizer states have changed.
        """

    @abstractmethod
    def skip(self) -> None:
        """Drop the gradient, finite or not, without an update."""

    @abstractmethod
    def gradient_norm(self) -> float:
        """Return the norm of the last step's whole gradient before clipping; inf if it was not finite."""

    @property
    def updates(self) -> int:
        """Number of updates: steps that moved the weights. AdamW's bias correction depends on it, so
        checkpoints hold it. Reading it waits for the device."""
        return int(self._updates)

    @property
    def observer(self) -> Callable[[list[Part]], None] | None:
        """Called before each update, once per parameter group, with the gradient that will be applied (kind
        `gradient`): reduced over ranks and clipped. None calls nothing."""
        return self._observer

    @observer.setter
    def observer(self, callback: Callable[[list[Part]], None] | None) -> None:
        self._observer = callback
        self.optimizer.observer = None if callback is None else self._observe

    def _observe(self, flat: Tensor) -> None:
        if self._observer is None or flat.grad is None:
            return
        at = next(i for i, own in enumerate(self.flats) if own is flat)
        gradient = flat.grad
        self._observer(
            [
                Part(p.name, "gradient", p.start, gradient[p.at : p.at + p.count].float())
                for p in self.pieces[at]
            ]
        )

    def set_learning_rate(self, multiplier: float) -> None:
        """Set the learning rate of every group to its peak times `multiplier`."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * multiplier

    @property
    def learning_rate(self) -> float:
        """Current learning rate of the first group (the layers' matrices)."""
        return float(self.optimizer.param_groups[0]["lr"])

    def parts(self) -> list[Part]:
        """Weights and optimizer states that this rank owns, in a fixed order; all kinds from the start."""
        return self._held()

    def _held(self) -> list[Part]:
        """Return all that this rank holds; it may own only some of it."""
        found = []
        for flat, pieces in zip(self.flats, self.pieces, strict=True):
            for kind, values in self._states(flat).items():
                found += [Part(p.name, kind, p.start, values[p.at : p.at + p.count]) for p in pieces]
        return found

    def _states(self, flat: Tensor) -> dict[str, Tensor]:
        states = self.optimizer.state[flat]
        return {WEIGHT: flat.data, **{k: v for k, v in states.items() if v.shape == flat.shape}}

    def restore(self, read: StateReader, updates: int) -> None:
        """Load a state that was saved with any backend, ZeRO stage and number of ranks."""
        self._updates = updates
        for name, kind, start, values in self._held():
            values.copy_(read(name, kind, start, len(values)))
        for flat in self.flats:
            state = self.optimizer.state[flat]
            if "step" in state:
                state["step"].fill_(updates)
        self._weights_changed(read)

    @abstractmethod
    def _weights_changed(self, read: StateReader) -> None:
        """Copy `flats` to the weights that the forward pass reads."""

    def loss_scale(self) -> LossScale:
        """State of fp16's loss scaling, for a checkpoint; empty in other precisions."""
        return {}

    def set_loss_scale(self, state: LossScale) -> None:  # noqa: B027
        """Go on with a state that `loss_scale` returned, of any backend; an empty one changes nothing."""

    def full_weights(self) -> dict[str, Tensor]:
        """Return the fp32 weights of every parameter that is trained in its shape, on the CPU, on every
        rank."""
        found = {}
        mine: dict[str, list[Part]] = {}
        for part in self.parts():
            if part.kind == WEIGHT:
                mine.setdefault(part.name, []).append(part)
        for name, shape in self.shapes().items():
            whole = torch.zeros(shape.numel(), dtype=torch.float32, device=self.device)
            for part in mine.get(name, ()):
                whole[part.start : part.start + len(part.values)] = part.values
            if self.world_size > 1:
                dist.all_reduce(whole)
            found[name] = whole.view(shape).cpu()
        return found

    def shapes(self) -> dict[str, torch.Size]:
        """Shape of each parameter that is trained, even where its weights are partitioned."""
        return {name: p.shape for name, p in trained(self.decoder)}

    @contextmanager
    def scoring(self) -> Iterator[Decoder]:
        """The decoder in evaluation mode with whole weights; each rank may run it as often as it needs.

        On CUDA compiled layers run as they were written: for the shapes of a validation, and without
        gradients, each would be compiled about four times more, for much less than 1 % of a training's work.
        """
        is_compiled = self.options.compile and self.device.type == "cuda"
        self.decoder.eval()
        try:
            with torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
                yield self.decoder
        finally:
            self.decoder.train()

    def _loss(self, module: Callable[..., Tensor], rows: Batch, scale: float) -> Tensor:
        """Return the loss of `LossModule` for these rows; neither the copy nor the call waits for the device.

        What is not contiguous, such as rows without their common padding, torch copies to CUDA from a
        temporary copy that is not page-locked, and waits.
        """
        arrays: list[NDArray[Any]] = [
            rows.ids_BT,
            rows.segments_BT,
            rows.targets_BT,
            np.flatnonzero(rows.targets_BT >= 0),
        ]
        if self.decoder.attention == "varlen":
            arrays.append(document_bounds(rows.segments_BT))
        bounds, count = len(arrays) - 4, len(arrays)
        if rows.kinds_BT is not None and rows.frequent is not None:
            kinds = rows.kinds_BT.reshape(-1)[arrays[3]]
            whole = np.flatnonzero(kinds != NEAR)
            arrays += [rows.frequent.order, np.flatnonzero(kinds == NEAR), whole, kinds[whole] == DRAWN]
        tensors = [torch.from_numpy(np.ascontiguousarray(x)) for x in arrays]
        if self.device.type == "cuda":
            tensors = [x.pin_memory() for x in tensors]
        ids, segments, targets, at, *others = (x.to(self.device, non_blocking=True) for x in tensors)
        apart: tuple[Any, ...] | None = None
        if len(arrays) > count and rows.frequent is not None:
            apart = (*others[bounds:], rows.frequent.count, DRAWN_SHARE)
        return module(ids, segments, targets, scale, at, others[0] if bounds else None, apart)


def trained(decoder: Decoder) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Return the names and parameters of what is not frozen."""
    return ((name, p) for name, p in decoder.named_parameters() if p.requires_grad)


def copy_with(decoder: Decoder, weights: dict[str, Tensor], device: torch.device) -> Decoder:
    """Return a decoder of the same shape and dtype that holds `weights`; the training's random numbers
    stay."""
    dtype = next(decoder.parameters()).dtype
    with torch.random.fork_rng(devices=[]):  # its first weights, which nobody sees, would move dropout's
        whole = Decoder(copy.copy(decoder.config))
        if decoder.lora:
            adapt(whole, decoder.lora, seed=0)
    if decoder.config.tie_word_embeddings:
        weights = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
    whole.load_state_dict(weights)
    return whole.to(device=device, dtype=dtype).eval()


_BLOCK = 4096
"""Elements whose squares are summed before they are added to others."""


def norm_of(tensors: Iterable[Tensor]) -> Tensor:
    """Return the 2-norm of all elements together: fp32, no dimensions, on their device.

    On a CPU torch adds the squares of a tensor in 8 running sums: of 20 million elements the norm is 0.15 %
    too small. Of blocks, and then of the blocks' norms, it is right to 4e-7, in the same time; a copy in
    float64 takes 6 to 23 times as long (1.5 and 20 million elements, 1 and 2 threads).

    Args:
        tensors: fp32, one at least; one that is not contiguous is copied.
    """
    norms = []
    for tensor in tensors:
        flat = tensor.detach().reshape(-1)
        whole = len(flat) // _BLOCK * _BLOCK
        if whole:
            norms.append(torch.linalg.vector_norm(flat[:whole].view(-1, _BLOCK), dim=1))
        if whole < len(flat):
            norms.append(torch.linalg.vector_norm(flat[whole:]).view(1))
    norm: Tensor = torch.linalg.vector_norm(torch.cat(norms))
    return norm
