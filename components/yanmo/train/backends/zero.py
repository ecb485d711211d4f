"""DeepSpeed's engine, set up so that it compiles nothing at run time and needs no compiler.

Three traps: on Linux CPUs deepspeed compiles a shared-memory op at its first use and crashes without c++;
importing its Muon compiles kernels; a config that names "AdamW" builds FusedAdam. So the op is marked as
incompatible, torch.compile is off on CPUs, and the optimizer is an object of our own.

Accumulation is our own (`managed_gradient_accumulation: false`): gradients accumulate until `step` is called,
so that a step can be skipped and its number of micro batches can change. ZeRO-3 partitions each parameter by
itself: every rank owns an equal share of it, padded at the end, and a layer has whole weights only while it
runs.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from yanmo.model.decoder import Decoder
from yanmo.train.backends import process_group
from yanmo.train.backends.engine import Engine, StateReader, collective_timeout, copy_with, norm_of, trained
from yanmo.train.backends.loss_module import FIRST_POWER, WINDOW, LossModule, LossScale
from yanmo.train.backends.optimizer import MatrixAdamW, Piece, parameter_groups
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch
from yanmo.train.options.recipe_options import Rule


def import_deepspeed(device: str, compiled: bool = False) -> Any:
    """Return the deepspeed module, quiet and without builds; call this before anything else imports it.

    Args:
        compiled: whether the model will go through torch.compile, which is otherwise off on CPUs.
    """
    os.environ.setdefault("DS_ACCELERATOR", device)
    if device == "cpu" and not compiled:
        os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
        # Without this, torch.compile imports inductor first: 1.3 CPU-seconds per rank.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    logging.getLogger("torch.distributed.elastic").setLevel(logging.ERROR)
    is_new = "deepspeed" not in sys.modules
    with _without_mlflow():
        import deepspeed
        import deepspeed.ops

    if is_new:  # an engine in bf16 collects garbage ten times: it need not look through all that is imported
        gc.freeze()
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    _import_its_muon()
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    return deepspeed


@contextmanager
def _without_mlflow() -> Iterator[None]:
    """As if MLflow were not installed: DeepSpeed's autotuner, which nothing here uses, imports it.

    That would be 71 MiB in every rank of whoever hands figures to MLflow (`--sinks`); the sink is a process
    of its own.
    """
    is_there = "mlflow" in sys.modules
    if not is_there:
        sys.modules["mlflow"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if not is_there:
            del sys.modules["mlflow"]


def _import_its_muon() -> None:
    """Import DeepSpeed's Muon with its kernels as they are.

    ZeRO asks of any optimizer whether it is one. The kernels, which nothing here calls, go through
    torch.compile when they are imported, and that imports torch._dynamo: 1.1 CPU-seconds per rank.
    """
    from deepspeed.runtime import compiler

    through_torch = compiler.compile
    compiler.compile = lambda: lambda function: function
    try:
        import deepspeed.runtime.zero.muon.original_muon  # noqa: F401
    finally:
        compiler.compile = through_torch


class ZeroEngine(Engine):
    """A decoder under DeepSpeed."""

    backend = "deepspeed"

    def __init__(self, decoder: Decoder, options: TrainConfig, device: str) -> None:
        """See `open_engine`; device is cpu or cuda."""
        super().__init__()
        deepspeed = import_deepspeed(device, options.compile)
        self.device = torch.device(device)
        if device == "cuda":
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
            torch.cuda.set_device(self.device)
        backend = "nccl" if device == "cuda" else "gloo"
        process_group.join(backend, collective_timeout(options))
        deepspeed.init_distributed(backend, verbose=False)  # takes the group that is there
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.options, self.decoder = options, decoder
        self._shapes = {name: p.shape for name, p in trained(decoder)}
        self.optimizer = MatrixAdamW(
            parameter_groups(decoder, options, device), (options.adam_beta1, options.adam_beta2)
        )
        config = engine_config(options)
        elements = sum(shape.numel() for shape in self._shapes.values())
        fit_buckets(config, elements, self.world_size, options.updates_in_place)
        self._engine = deepspeed.initialize(
            model=LossModule(decoder),
            optimizer=self.optimizer,
            config=config,
            dist_init_required=False,
        )[0]
        if options.precision == "fp16":  # as many overflows in a row are the training's own to judge
            self._engine.optimizer.loss_scaler.raise_error_at_min_scale = False
        if self._is_stage_3:
            self._locate(*self._stage_3())
        else:
            if options.updates_in_place:
                self._spare_copies()
            flats: list[Tensor] = [group["params"][0] for group in self.optimizer.param_groups]
            self._locate(flats, [self._pieces_of(i) for i in range(len(flats))])

    @property
    def _is_stage_3(self) -> bool:
        return self.options.zero_stage == 3

    def _spare_copies(self) -> None:
        """Stages 1 and 2 in fp32: update the weights of the forward pass themselves, take the norm in fp32.

        DeepSpeed keeps a second fp32 copy, as it must beside 16-bit weights, copies each gradient to float64
        for its norm, and has a single rank reduce its gradient, which takes as long as copying it.
        """
        zero = self._engine.optimizer
        for own, shares in zip(
            zero.single_partition_of_fp32_groups, zero.parallel_partitioned_bit16_groups, strict=True
        ):
            own.data = shares[self.rank].data
        zero.scaled_global_norm = self._norm_of_all
        if self.world_size == 1:
            zero.buffered_reduce_fallback = lambda *arguments, **more: None

    def _norm_of_all(self, norm_type: int = 2) -> Tensor:
        """In place of DeepSpeed's, called as it is: the norm of the reduced gradient, over all ranks."""
        groups = self._engine.optimizer.averaged_gradients.values()
        norm = norm_of(gradient for group in groups for gradient in group)
        if self.world_size == 1:
            return norm
        squared = norm.square()
        dist.all_reduce(squared)
        return squared.sqrt()

    def _pieces_of(self, group: int) -> list[Piece]:
        """Stages 1 and 2: the group's parameters lie one after another and are cut into equal parts."""
        pieces = []
        for name, parameter in trained(self.decoder):
            mapping = parameter._hp_mapping  # type: ignore[attr-defined]
            if mapping is None or mapping.param_group_index != group:
                continue
            source, place = mapping.lp_fragment_address, mapping.hp_fragment_address
            pieces.append(Piece(name, parameter.shape, source.start, source.numel, place.start))
        return pieces

    def _stage_3(self) -> tuple[list[Tensor], list[list[Piece]]]:
        """Stage 3: each parameter is cut into equal parts, of which the last ones are padded or empty."""
        zero = self._engine.optimizer
        names = {id(p): name for name, p in self.decoder.named_parameters()}
        flats, pieces = list(zero.fp32_partitioned_groups_flat), []
        for group in zero.fp16_groups:
            found = []
            for parameter in group:
                _, at, count = zero.grad_position[zero.get_param_id(parameter)]
                name = names[id(parameter)]
                start = self.rank * count
                count = min(count, self._shapes[name].numel() - start)
                if count > 0:
                    found.append(Piece(name, self._shapes[name], start, count, at))
            pieces.append(found)
        return flats, pieces

    def _rule(self, i: int) -> Rule:
        return super()._rule(self._engine.optimizer.sub_group_to_group_id[i] if self._is_stage_3 else i)

    def shapes(self) -> dict[str, torch.Size]:
        """See `Engine`."""
        return self._shapes

    def accumulate(self, rows: Batch, num_targets: int) -> Tensor:
        """See `Engine`."""
        # DeepSpeed averages over ranks; times their number it is the sum. A batch may have no target: chats'
        # questions.
        scale = self.world_size / max(num_targets, 1)
        # In fp16 DeepSpeed multiplies the loss by this at the start of the backward pass; it has to be there
        # before the sums in fp16, which are made in the forward pass. It is a power of 2, so this is exact.
        of_loss = self.loss_scale().get("scale", 1.0)
        loss = self._loss(self._engine, rows, scale * of_loss)
        loss = loss if of_loss == 1 else loss / of_loss
        if self.forwarded:
            self.forwarded()
        self._engine.backward(loss)
        return loss.detach().float() / scale

    def step(self) -> Tensor:
        """See `Engine`. DeepSpeed itself reads the norm and whether it is finite: no option lets the device
        decide, so the host waits for the backward pass once per step."""
        self._engine.step()
        applied = bool(self._engine.was_step_applied())
        self._updates = self.updates + applied
        return torch.full((), applied, device=self.device)

    def skip(self) -> None:
        """See `Engine`."""
        scale = self.loss_scale()
        self.optimizer.idle = True
        try:
            self._engine.step()
        finally:
            self.optimizer.idle = False
            self.set_loss_scale(scale)

    def loss_scale(self) -> LossScale:
        """See `Engine`."""
        if self.options.precision != "fp16":
            return {}
        scaler = self._engine.optimizer.loss_scaler
        return {
            "scale": float(scaler.cur_scale),
            "good_steps": (scaler.cur_iter - scaler.last_overflow_iter - 1) % WINDOW,
        }

    def set_loss_scale(self, state: LossScale) -> None:
        """See `Engine`."""
        if state:
            scaler = self._engine.optimizer.loss_scaler
            scaler.cur_scale = state["scale"]
            scaler.cur_iter, scaler.last_overflow_iter = state["good_steps"], -1

    def gradient_norm(self) -> float:
        """See `Engine`."""
        return float(self._engine.get_global_grad_norm() or 0.0)

    def _weights_changed(self, read: StateReader) -> None:
        if self._is_stage_3:
            zero = self._engine.optimizer
            for i in range(len(self.flats)):
                zero._reassign_or_swap_out_partitioned_parameters(i)
            if zero.persistent_parameters:
                zero.persistent_parameters[0].all_gather(zero.persistent_parameters)
            return
        for name, parameter in trained(self.decoder):
            parameter.data.copy_(read(name, "weight", 0, parameter.numel()).view_as(parameter))

    @contextmanager
    def scoring(self) -> Iterator[Decoder]:
        """See `Engine`; under ZeRO-3 this is a second, whole decoder."""
        if not self._is_stage_3:
            with super().scoring() as decoder:
                yield decoder
            return
        yield copy_with(self.decoder, self._frozen() | self.full_weights(), self.device)

    def _frozen(self) -> dict[str, Tensor]:
        """Under ZeRO-3, what is not trained, put together on the CPU."""
        import deepspeed

        found = {}
        for name, parameter in self.decoder.named_parameters():
            if not parameter.requires_grad:
                with deepspeed.zero.GatheredParameters([parameter]):
                    found[name] = parameter.detach().cpu().clone()
        return found


def engine_config(options: TrainConfig) -> dict[str, Any]:
    """Return DeepSpeed's configuration."""
    zero: dict[str, Any] = {"stage": options.zero_stage}
    if options.offload == "optimizer":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": options.micro_rows,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": options.clip,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,  # ours; tested against torch.optim in test_optimizer.py
        "zero_force_ds_cpu_optimizer": False,  # its own CPU optimizer would be compiled at the first run
        "data_types": {"grad_accum_dtype": "fp32"},  # the default accumulates in bf16
        "steps_per_print": 10**9,
        "timers": {"throughput": {"enabled": False}},  # it waits for the GPU before each forward
    }
    if options.precision == "bf16":
        # Without these, stage 1 accumulates micro batches in bf16 and sends fp32 sums as bf16, which changes
        # gradients by 0.26 % (measured).
        config["bf16"] = {"enabled": True, "immediate_grad_update": True}
        config["communication_data_type"] = "fp32"
    if options.precision == "fp16":
        scaling = {"loss_scale": 0, "initial_scale_power": FIRST_POWER, "loss_scale_window": WINDOW}
        config["fp16"] = {"enabled": True, "hysteresis": 1, "min_loss_scale": 1, **scaling}
        config["communication_data_type"] = "fp32"
    return config


def fit_buckets(config: dict[str, Any], elements: int, ranks: int, in_place: bool = False) -> None:
    """Make DeepSpeed's gradient bucket no larger than the gradient: it is allocated whole in every step.

    By default it holds 5e8 numbers: in fp32, 2 GB of GPU memory for any model. A single rank needs no
    reduce-scatter, and where weights are updated in place no bucket: without contiguous gradients none is
    copied to it, and ZeroEngine reduces none.

    Args:
        config: what `engine_config` returned; changed in place.
        elements: number of weights of the model.
        in_place: `TrainConfig.updates_in_place`.
    """
    zero = config["zero_optimization"]
    alone = ranks == 1 and zero["stage"] < 3
    zero["reduce_bucket_size"] = min(elements, 500_000_000)
    if alone:
        zero["reduce_scatter"] = False
        if in_place:
            zero["contiguous_gradients"] = False
