"""DeepSpeed's engine, set up so that it needs no compiler and no just-in-time build.

Three traps, each met: on Linux CPUs deepspeed compiles a
shared-memory op at its first use and crashes without c++; importing its Muon compiles kernels; a config
that names "AdamW" builds FusedAdam. So the op is masked, torch.compile is off on CPUs, and the optimizer
is our own client object.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from yanmo.model.decoder import Decoder
from yanmo.model.loss import linear_cross_entropy
from yanmo.train.config import TrainConfig
from yanmo.train.data import Batch
from yanmo.train.optimizer import MatrixAdamW, Piece, cut_places, parameter_groups

_TIMEOUT = timedelta(minutes=10)


def import_deepspeed(device: str) -> Any:
    """The deepspeed module, quiet and without builds; before anything else imports it.

    Raises:
        RuntimeError: deepspeed no longer has the private table that masks the op; pin another version.
    """
    os.environ.setdefault("DS_ACCELERATOR", device)
    if device == "cpu":
        os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
    logging.getLogger("torch.distributed.elastic").setLevel(logging.ERROR)
    import deepspeed
    import deepspeed.ops

    if not hasattr(deepspeed.ops, "__compatible_ops__"):
        raise RuntimeError(
            f"deepspeed {deepspeed.__version__} has no ops.__compatible_ops__: its shared-memory op would be "
            "compiled at run time; use the pinned version (0.19.8)"
        )
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    return deepspeed


def engine_config(options: TrainConfig) -> dict[str, Any]:
    """DeepSpeed's configuration."""
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": options.micro_rows,
        "gradient_accumulation_steps": options.accumulation,
        "gradient_clipping": options.clip,
        "zero_optimization": {"stage": options.zero_stage},
        "zero_allow_untested_optimizer": True,  # ours; tested against torch.optim in test_optimizer.py
        "data_types": {"grad_accum_dtype": "fp32"},  # the default accumulates in bf16
        "steps_per_print": 10**9,
    }
    if options.precision == "bf16":
        config["bf16"] = {"enabled": True}
    return config


class LossModule(nn.Module):
    """What the engine calls: the decoder and its loss."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, ids_BT: Tensor, segments_BT: Tensor, targets_BT: Tensor, scale: float) -> Tensor:
        """The summed loss of the positions that have a target, times `scale`."""
        hidden_BTD = self.decoder.hidden(ids_BT, segments_BT)
        at = (targets_BT >= 0).flatten().nonzero().squeeze(1)
        hidden_ND = hidden_BTD.flatten(0, 1).index_select(0, at)
        return linear_cross_entropy(hidden_ND, self.decoder.lm_head.weight, targets_BT.flatten()[at], scale)


class Engine:
    """A decoder under DeepSpeed: forward, backward, step, and where its state lies."""

    def __init__(self, decoder: Decoder, options: TrainConfig, device: str) -> None:
        """Args:
        decoder: with the first weights on rank 0; the other ranks get them from there.
        device: cpu or cuda.
        """
        deepspeed = import_deepspeed(device)
        self.device = torch.device(device)
        if device == "cuda":
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
            torch.cuda.set_device(self.device)
        backend = "nccl" if device == "cuda" else "gloo"
        deepspeed.init_distributed(backend, timeout=_TIMEOUT, verbose=False)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.options, self.decoder = options, decoder
        module = LossModule(decoder)
        self.optimizer = MatrixAdamW(
            parameter_groups(decoder, options), (options.adam_beta1, options.adam_beta2)
        )
        self._engine = deepspeed.initialize(
            model=module, optimizer=self.optimizer, config=engine_config(options), dist_init_required=False
        )[0]
        self.flats: list[Tensor] = [group["params"][0] for group in self.optimizer.param_groups]
        self.pieces = [self._pieces_of(i) for i in range(len(self.flats))]
        everyone: list[Any] = [None] * self.world_size
        dist.all_gather_object(everyone, self.pieces)
        for i, flat in enumerate(self.flats):
            self.optimizer.locate(flat, self.pieces[i], cut_places(pieces[i] for pieces in everyone))

    def _pieces_of(self, group: int) -> list[Piece]:
        pieces = []
        for name, parameter in self.decoder.named_parameters():
            mapping = parameter._hp_mapping  # type: ignore[attr-defined]
            if mapping is None or mapping.param_group_index != group:
                continue
            source, place = mapping.lp_fragment_address, mapping.hp_fragment_address
            pieces.append(Piece(name, parameter.shape, source.start, source.numel, place.start))
        return pieces

    def set_learning_rate(self, multiplier: float) -> None:
        """Scale every group's peak learning rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * multiplier

    def accumulate(self, rows: Batch, num_targets: int) -> float:
        """One forward and backward; after the last of a step, the update.

        Args:
            num_targets: of the global batch, so that the loss is its mean however it is cut up.

        Returns:
            The summed loss of these rows in nats.
        """
        # DeepSpeed averages gradients over ranks and forwards; this takes both averages back.
        scale = self.world_size * self.options.accumulation / num_targets
        arrays = (rows.ids_BT, rows.segments_BT, rows.targets_BT)
        ids, segments, targets = (torch.from_numpy(x).to(self.device) for x in arrays)
        loss = self._engine(ids, segments, targets, scale)
        self._engine.backward(loss)
        self._engine.step()
        return float(loss.item()) / scale

    def gradient_norm(self) -> float:
        """Norm of the last step's whole gradient before it was clipped."""
        return float(self._engine.get_global_grad_norm() or 0.0)

    def load(self, name: str, full: Tensor) -> None:
        """Set the weights that the forward reads of one parameter (the optimizer's are `flats`)."""
        parameter = self.decoder.get_parameter(name)
        parameter.data.copy_(full.view_as(parameter))

    def full_weights(self) -> dict[str, Tensor]:
        """Every parameter's fp32 weights, on every rank."""
        found = {}
        for name, parameter in self.decoder.named_parameters():
            whole = torch.zeros(parameter.numel(), dtype=torch.float32, device=self.device)
            for flat, pieces in zip(self.flats, self.pieces, strict=True):
                for p in pieces:
                    if p.name == name:
                        whole[p.start : p.start + p.count] = flat.data[p.at : p.at + p.count]
            if self.world_size > 1:
                dist.all_reduce(whole)
            found[name] = whole.view(parameter.shape).cpu()
        return found
