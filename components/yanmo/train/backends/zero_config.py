"""DeepSpeed's configuration, from our options."""

from __future__ import annotations

from typing import Any

from yanmo.train.backends.loss_scale import FIRST_POWER, WINDOW
from yanmo.train.config import TrainConfig


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
