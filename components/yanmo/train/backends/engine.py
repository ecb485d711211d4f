"""The interface between the training loop and its backends: one protocol, two backends.

    loop, checkpoint, validation  ->  Engine  <-  backends/zero.py   DeepSpeed, ZeRO-1, 2 and 3
                                              <-  backends/plain.py  torch alone: MPS, comparison

A step is one `accumulate` per micro batch, then `step`, or `skip` to drop the gradient. In between, no number
is read back from the device: losses stay tensors until they are needed.

The state is fp32 and by parameter, with every backend, ZeRO stage and number of ranks: `parts` are views of
what this rank owns, the parts of all ranks together hold everything exactly once, and `restore` reads a state
that was divided in any other way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from yanmo.model.decoder import Decoder
from yanmo.train.backends.loss_scale import LossScale
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch

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


class Engine(Protocol):
    """A decoder that can be trained: forward, backward, update, and its state.

    All methods but `set_learning_rate` and `parts` are called by all ranks together.
    """

    backend: str
    """deepspeed or torch."""
    options: TrainConfig
    decoder: Decoder
    """The model of the forward pass. Under ZeRO-3 a layer has its weights only while it runs: read weights
    through `parts`, `full_weights` or `scoring`."""
    device: torch.device
    rank: int
    world_size: int

    @property
    def updates(self) -> int:
        """Number of updates: steps that moved the weights. AdamW's bias correction depends on it, so
        checkpoints hold it. Reading it waits for the device."""

    forwarded: Callable[[], None] | None
    """Called between forward and backward pass of each micro batch, for timing; None calls nothing."""
    observer: Callable[[list[Part]], None] | None
    """Called before each update, once per parameter group, with the gradient that will be applied (kind
    `gradient`): reduced over ranks and clipped. None calls nothing."""

    def accumulate(self, rows: Batch, num_targets: int) -> Tensor:
        """Do one forward and backward pass, which adds to the gradient.

        Args:
            rows: rows of this rank.
            num_targets: targets in the global batch, so that the gradient is that of the batch's mean loss.

        Returns:
            The summed loss of these rows in nats: fp32, no dimensions, on the device, detached.
        """

    def step(self) -> Tensor:
        """Reduce the gradient over ranks, clip it, update, and begin a new gradient.

        Returns:
            Whether the weights moved: bool, no dimensions, on the device. False, on all ranks alike, if the
            gradient was not finite; then neither weights nor optimizer states have changed.
        """

    def skip(self) -> None:
        """Drop the gradient, finite or not, without an update."""

    def gradient_norm(self) -> float:
        """Return the norm of the last step's whole gradient before clipping; inf if it was not finite."""

    def set_learning_rate(self, multiplier: float) -> None:
        """Set the learning rate of every group to its peak times `multiplier`."""

    @property
    def learning_rate(self) -> float:
        """Current learning rate of the first group (the layers' matrices)."""

    def parts(self) -> list[Part]:
        """Weights and optimizer states that this rank owns, in a fixed order; all kinds from the start."""

    def restore(self, read: StateReader, updates: int) -> None:
        """Load a state that was saved with any backend, ZeRO stage and number of ranks."""

    def loss_scale(self) -> LossScale:
        """State of fp16's loss scaling, for a checkpoint; empty in other precisions."""

    def set_loss_scale(self, state: LossScale) -> None:
        """Go on with a state that `loss_scale` returned, of any backend; an empty one changes nothing."""

    def full_weights(self) -> dict[str, Tensor]:
        """Return the fp32 weights of every parameter that is trained in its shape, on the CPU, on every
        rank."""

    def scoring(self) -> AbstractContextManager[Decoder]:
        """The decoder in evaluation mode with whole weights; each rank may run it as often as it needs."""
