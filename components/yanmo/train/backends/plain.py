"""The engine with torch alone: for Apple's MPS, for machines without DeepSpeed, for comparison.

Every rank holds everything. Weights are in one flat fp32 tensor per group; with bf16 or fp16 the forward pass
reads a flat copy in that type, and gradients are accumulated in fp32. `DistributedDataParallel` is not used,
as it reduces gradients in the dtype of the parameters: with bf16 the other backend would give other results.
Instead there is one all-reduce per group after the last backward pass; it does not overlap with computation,
so use DeepSpeed for many GPUs.
"""

from __future__ import annotations

import math
import os

import torch
import torch.distributed as dist
from torch import Tensor

from yanmo.model.attention import DTYPES
from yanmo.model.decoder import Decoder
from yanmo.train.backends import process_group
from yanmo.train.backends.engine import Engine, Part, StateReader, collective_timeout, norm_of
from yanmo.train.backends.loss_module import FIRST_POWER, WINDOW, LossModule, LossScale
from yanmo.train.backends.optimizer import MatrixAdamW, Piece, parameter_groups
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch


class PlainEngine(Engine):
    """A decoder under plain torch."""

    backend = "torch"

    def __init__(self, decoder: Decoder, options: TrainConfig, device: str) -> None:
        """See `open_engine`; device is cpu, cuda or mps."""
        super().__init__()
        self.device = torch.device(device)
        if device == "cuda":
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
            torch.cuda.set_device(self.device)
        process_group.join("nccl" if device == "cuda" else "gloo", collective_timeout(options))
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.options, self.decoder = options, decoder.to(self.device)
        self._dtype = DTYPES[options.precision]
        scaled = options.precision == "fp16"
        self._scaler = torch.amp.GradScaler(device, growth_interval=WINDOW) if scaled else None
        self._scale = 2.0**FIRST_POWER if self._scaler else 1.0
        """Of the loss, in fp16; a number here, so that reading it waits for the device once a step."""
        self._module = LossModule(decoder)
        for parameter in decoder.parameters():
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(self._dtype)
        groups = parameter_groups(decoder, options, device)
        names = {id(p): name for name, p in decoder.named_parameters()}
        self._read: list[Tensor] = []
        self._sums: list[tuple[Tensor, Tensor]] = []
        """In 16 bits: each parameter, and where its gradient is summed in fp32."""
        flats, pieces = [], []
        for group in groups:
            flat, read, found = self._flatten(group["params"], names)
            flats.append(flat)
            pieces.append(found)
            self._read.append(read)
            group["params"] = [flat]
        self.optimizer = MatrixAdamW(groups, (options.adam_beta1, options.adam_beta2))
        self._locate(flats, pieces)
        self._norm = torch.zeros(())
        self._defers = self.device.type != "cpu"
        """Whether the device itself decides to skip an update; on a CPU the host can, as it never waits."""

    def _flatten(self, parameters: list[Tensor], names: dict[int, str]) -> tuple[Tensor, Tensor, list[Piece]]:
        """Return the fp32 tensor of a group, the tensor that the forward pass reads, and the pieces in it."""
        whole = torch.cat([p.detach().float().flatten() for p in parameters])
        if self.world_size > 1:
            dist.broadcast(whole, 0)
        read = whole.to(self._dtype)
        whole = read.float()  # the first weights are what the forward reads, as under DeepSpeed
        flat = torch.nn.Parameter(read if self._dtype == torch.float32 else whole)
        flat.grad = torch.zeros_like(flat)
        pieces, at = [], 0
        for parameter in parameters:
            part = slice(at, at + parameter.numel())
            parameter.data = read[part].view_as(parameter)
            gradient = flat.grad[part].view(parameter.shape)
            if self._dtype == torch.float32:
                parameter.grad = gradient
            else:
                self._sums.append((parameter, gradient))
            pieces.append(Piece(names[id(parameter)], parameter.shape, 0, parameter.numel(), at))
            at += parameter.numel()
        return flat, read, pieces

    def accumulate(self, rows: Batch, num_targets: int) -> Tensor:
        """See `Engine`."""
        num_targets = max(num_targets, 1)  # a batch that holds only questions of chats has none
        # The scale goes in before the sums in fp16, where most of the gradient would be 0 without it.
        loss = self._loss(self._module, rows, self._scale / num_targets)
        if self.forwarded:
            self.forwarded()
        loss.backward()  # type: ignore[no-untyped-call]
        self._add_gradients()
        return loss.detach().float() * (num_targets / self._scale)

    def _add_gradients(self) -> None:
        """Add what the backward pass gave in 16 bits to the sums in fp32; one call for all, as on a GPU the
        host's time for a hook of each parameter is a tenth of a step of `small`."""
        given = [(total, p.grad) for p, total in self._sums if p.grad is not None]
        if given:
            torch._foreach_add_(*(list(x) for x in zip(*given, strict=True)))
        for parameter, _ in self._sums:
            parameter.grad = None

    def step(self) -> Tensor:
        """See `Engine`; nothing is read back from a device that computes asynchronously."""
        gradients = [flat.grad for flat in self.flats if flat.grad is not None]
        if self.world_size > 1:
            for gradient in gradients:
                dist.all_reduce(gradient)
        if self._scaler:
            self._scaler.scale(gradients[0].new_zeros(()))  # makes its scale, at its first use
            self._scaler.unscale_(self.optimizer)
        self._norm = norm_of(gradients)
        finite = torch.isfinite(self._norm)
        if self._defers:
            self.optimizer.found_inf = (~finite).float()
        if self._defers or finite:
            if self.options.clip:
                share = (self.options.clip / (self._norm + 1e-6)).clamp(max=1.0)
                for gradient in gradients:
                    gradient.mul_(share)
            self.optimizer.step()
            self._copy_to_forward()
        self._updates = self._updates + finite
        if self._scaler:
            self._scaler.update()
            self._scale = self._scaler.get_scale()
        self.skip()
        return finite

    def loss_scale(self) -> LossScale:
        """See `Engine`."""
        if self._scaler is None:
            return {}
        state = self._scaler.state_dict()
        return {"scale": state["scale"], "good_steps": state["_growth_tracker"]}

    def set_loss_scale(self, state: LossScale) -> None:
        """See `Engine`."""
        if self._scaler and state:
            own = {"scale": state["scale"], "_growth_tracker": state["good_steps"]}
            self._scaler.load_state_dict(self._scaler.state_dict() | own)
            self._scale = state["scale"]

    def skip(self) -> None:
        """See `Engine`."""
        for flat in self.flats:
            if flat.grad is not None:
                flat.grad.zero_()

    def gradient_norm(self) -> float:
        """See `Engine`."""
        norm = float(self._norm)
        return norm if math.isfinite(norm) else math.inf

    def _copy_to_forward(self) -> None:
        if self._dtype != torch.float32:
            for flat, read in zip(self.flats, self._read, strict=True):
                read.copy_(flat.data)

    def _weights_changed(self, read: StateReader) -> None:
        self._copy_to_forward()

    def full_weights(self) -> dict[str, Tensor]:
        """See `Engine`; every rank has them."""
        return {
            p.name: flat.data[p.at : p.at + p.count].view(p.shape).cpu().clone()
            for flat, pieces in zip(self.flats, self.pieces, strict=True)
            for p in pieces
        }

    def parts(self) -> list[Part]:
        """See `Engine`; all ranks hold everything, so the parameters are divided among them."""
        names = [p.name for pieces in self.pieces for p in pieces][self.rank :: self.world_size]
        mine = set(names)
        return [part for part in self._held() if part.name in mine]


def open_engine(decoder: Decoder, options: TrainConfig, device: str) -> Engine:
    """Return the engine that the options ask for; joins the process group.

    Args:
        decoder: holds the first weights on rank 0; the other ranks receive them from rank 0.
        device: cpu, cuda or mps.
    """
    if options.backend == "torch":
        return PlainEngine(decoder, options, device)
    from yanmo.train.backends.zero import ZeroEngine  # DeepSpeed is imported only where it is used

    return ZeroEngine(decoder, options, device)
