"""The seam between the training loop and what computes: one protocol, two backends.

    loop, checkpoint, validation  ->  Engine  <-  backends/zero.py   DeepSpeed, ZeRO-1, 2 and 3
                                              <-  backends/plain.py  torch alone: MPS, comparison

A step is one `accumulate` per micro batch, then `step`, or `skip` to drop the gradient. Nothing in between
reads a number back from the device: losses stay tensors until they are needed.

State is per parameter and fp32 for every backend, stage and number of ranks: `parts` are views of what this
rank owns, the parts of all ranks together hold everything once, and `restore` takes any other partition.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from yanmo.model.decoder import Decoder
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch

WEIGHT = "weight"
"""Kind of the parts that hold a parameter itself; the others are states of its optimizer: `momentum_buffer`
of Muon, `exp_avg` and `exp_avg_sq` of AdamW."""


class Part(NamedTuple):
    """A run of elements of one parameter, or of one of its optimizer states, that this rank owns."""

    name: str
    """The parameter, as in the exported model."""
    kind: str
    start: int
    """First element, counted in the flattened parameter."""
    values: Tensor
    """fp32, one dimension: a view of the live state. Copy it before the next step."""


Reader = Callable[[str, str, int, int], Tensor]
"""(parameter, kind, first element, elements) -> fp32 values of a checkpoint, one dimension."""


class Engine(Protocol):
    """A decoder that can be trained: forward, backward, update, and its state.

    All methods but `set_learning_rate` and `parts` are called by all ranks together.
    """

    backend: str
    """deepspeed or torch."""
    options: TrainConfig
    decoder: Decoder
    """The model of the forward pass. Under ZeRO-3 a layer has its weights only while it runs: read them
    through `parts`, `full_weights` or `scoring`."""
    device: torch.device
    rank: int
    world_size: int

    @property
    def updates(self) -> int:
        """Updates done: steps that were not skipped. AdamW's bias correction depends on it, so checkpoints
        hold it. Reading it waits for the device."""

    forwarded: Callable[[], None] | None
    """Called between forward and backward of each micro batch, for timing. None costs nothing."""
    observer: Callable[[list[Part]], None] | None
    """Called in each update, once per group of parameters, with the gradient (kind `gradient`) as it is
    applied: reduced over ranks and clipped. The weights have not moved yet. None costs nothing."""

    def accumulate(self, rows: Batch, num_targets: int) -> Tensor:
        """One forward and backward; adds to the gradient.

        Args:
            rows: rows of this rank.
            num_targets: targets of the global batch, so that the gradient is that of its mean loss.

        Returns:
            The summed loss of these rows in nats: fp32, no dimensions, on the device, detached.
        """

    def step(self) -> Tensor:
        """Reduce the gradient over ranks, clip it, update, and begin a new gradient.

        Returns:
            Whether the weights moved: bool, no dimensions, on the device. False on all ranks alike where the
            gradient was not finite; then neither weights nor states have changed.
        """

    def skip(self) -> None:
        """Drop the gradient (finite or not) without an update; on all ranks or on none."""

    def gradient_norm(self) -> float:
        """Norm of the last step's whole gradient before it was clipped; inf where it was not finite."""

    def set_learning_rate(self, multiplier: float) -> None:
        """Scale every group's peak learning rate."""

    @property
    def learning_rate(self) -> float:
        """Current learning rate of the first group (the layers' matrices)."""

    def parts(self) -> list[Part]:
        """Weights and optimizer states that this rank owns, in a fixed order; all kinds from the start."""

    def restore(self, read: Reader, updates: int) -> None:
        """Load a state that was saved by any backend, stage and number of ranks."""

    def full_weights(self) -> dict[str, Tensor]:
        """Every parameter's fp32 weights in its shape, on the CPU, on every rank."""

    def scoring(self) -> AbstractContextManager[Decoder]:
        """The decoder in evaluation mode with whole weights; each rank may call it any number of times."""
