"""DeepSpeed's configuration: ours, merged with the user's file (--deepspeed-config)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.common.given_file import given_json, kind_of_json
from yanmo.train.backends.loss_scale import FIRST_POWER, WINDOW
from yanmo.train.config import TrainConfig

_OURS = {
    "train_batch_size": "--batch-rows",
    "train_micro_batch_size_per_gpu": "--micro-batch",
    "gradient_accumulation_steps": "--batch-rows and --micro-batch",
    "gradient_clipping": "--clip",
    "optimizer": "--optimizer",
    "scheduler": "--schedule",
    "bf16": "--precision",
    "fp16": "--precision",
    "torch_autocast": "--precision",
    "communication_data_type": "the engine: gradients are reduced in fp32",
    "zero_optimization.stage": "--zero-stage",
    "zero_optimization.offload_optimizer": "--offload",
}
"""Setting -> the option that decides it: a file may only say the same, or `auto` in any place of it."""
_NEVER = {
    "managed_gradient_accumulation": "accumulation is the engine's own",
    "zero_optimization.offload_param": "checkpoints could not read weights that are elsewhere",
    "zero_optimization.zero_hpz_partition_size": "checkpoints would miss parts of the weights",
    "activation_checkpointing": "give --gradient-checkpointing",
    "checkpoint": "checkpoints are in our own format",
    "amp": "give --precision",
}
"""Setting -> why a file must not have it."""
_FREE = ("steps_per_print",)
"""Settings of ours that a file may change."""
_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""Settings that depend on the micro batch."""


def engine_config(options: TrainConfig, *, check_batch: bool = True) -> dict[str, Any]:
    """DeepSpeed's configuration.

    Args:
        check_batch: whether a batch size in the file must agree with the options. True where the user's
            options are checked. False in the workers: their micro batch may be smaller, by night or after one
            did not fit into memory.

    Raises:
        UsageError: --deepspeed-config cannot be read, or contradicts an option; says which.
    """
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
    if options.deepspeed_config:
        theirs = _without_auto(_read(options.deepspeed_config))
        _check(theirs, options, config, [] if check_batch else _BATCH)
        _merge(config, theirs, f"--deepspeed-config {options.deepspeed_config}")
    return config


def fit_buckets(config: dict[str, Any], elements: int, ranks: int, in_place: bool = False) -> None:
    """Make DeepSpeed's gradient bucket no larger than the gradient: it is allocated whole in every step.

    By default it holds 5e8 numbers: in fp32, 2 GB of GPU memory for any model. A single rank needs no
    reduce-scatter, and where weights are updated in place no bucket: without contiguous gradients none is
    copied to it, and ZeroEngine reduces none. What the user's file sets is kept.

    Args:
        config: what `engine_config` returned; changed in place.
        elements: number of weights of the model.
        in_place: `TrainConfig.updates_in_place`.
    """
    zero = config["zero_optimization"]
    alone = ranks == 1 and zero["stage"] < 3
    zero.setdefault("reduce_bucket_size", min(elements, 500_000_000))
    if alone:
        zero.setdefault("reduce_scatter", False)
        if in_place:
            zero.setdefault("contiguous_gradients", False)


def _read(path: str) -> dict[str, Any]:
    what, shown = "a JSON object in a file", f"--deepspeed-config {path}"
    try:
        value = given_json(path, what, shown=shown, wrong=UsageError)
    except FileNotFoundError as error:
        raise UsageError(f"{shown}: expected {what}: no such file") from error
    if not isinstance(value, dict):
        raise UsageError(f"{shown}: expected {what}, found {kind_of_json(value)}")
    return value


def _without_auto(value: dict[str, Any]) -> dict[str, Any]:
    """Return a file's settings without those that it leaves to us, at any depth, and without what is empty
    then."""
    kept = {}
    for name, of_it in value.items():
        left = _without_auto(of_it) or "auto" if isinstance(of_it, dict) and of_it else of_it
        if left != "auto":
            kept[name] = left
    return kept


def _is_off(given: Any) -> bool:
    """Return whether a part of a file is switched off, whatever else it says."""
    return isinstance(given, dict) and (given.get("enabled") is False or given.get("device") == "none")


def _agrees(given: Any, same: Any) -> bool:
    """Return whether what a file says is what an option says, so far as the file says it."""
    if not isinstance(given, dict) or not isinstance(same, dict):
        return bool(given == same)
    if _is_off(same):  # what would be its settings says nothing, as long as they do not switch it on
        return given.get("enabled", False) is False and given.get("device", "none") == "none"
    return all(name in same and value == same[name] for name, value in given.items())


def _check(
    theirs: dict[str, Any], options: TrainConfig, ours: dict[str, Any], excused: Sequence[str]
) -> None:
    same = {
        "train_batch_size": options.batch_rows,
        "train_micro_batch_size_per_gpu": options.micro_rows,
        "gradient_accumulation_steps": options.accumulation,
        "gradient_clipping": options.clip,
        "zero_optimization.stage": options.zero_stage,
        "communication_data_type": "fp32",
        "torch_autocast": {"enabled": False},
        "bf16": ours.get("bf16", {"enabled": False}),
        "fp16": ours.get("fp16", {"enabled": False}),
        "optimizer": {"type": {"adamw": "AdamW", "muon": "Muon"}[options.optimizer]},
        "zero_optimization.offload_optimizer": ours["zero_optimization"].get(
            "offload_optimizer", {"device": "none"}
        ),
    }
    where = f"--deepspeed-config {options.deepspeed_config}"
    for name, reason in _NEVER.items():
        if _at(theirs, name) is not None and not _is_off(_at(theirs, name)):
            raise UsageError(f"{where}: {name} cannot be set: {reason}")
    for name, option in _OURS.items():
        given = _at(theirs, name)
        if given is None or name in excused or (name in same and _agrees(given, same[name])):
            continue
        what = f"is {json.dumps(same[name])} by" if name in same else "is decided by"
        raise UsageError(
            f"{where}: sets {name} to {json.dumps(given)[:80]}, but it {what} {option}; remove it from "
            "the file"
        )


def _at(config: dict[str, Any], name: str) -> Any:
    value: Any = config
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _merge(ours: dict[str, Any], theirs: dict[str, Any], where: str, above: str = "") -> None:
    """Add the file's settings to ours; what an option decides stays ours.

    Raises:
        UsageError: it changes what the engine relies on, such as sums in fp32; says what.
    """
    for key, value in theirs.items():
        name = f"{above}{key}"
        if key in _BATCH or name in _OURS or name in _NEVER:
            continue
        mine = ours.get(key)
        if isinstance(value, dict) and isinstance(mine, dict):
            _merge(mine, value, where, f"{name}.")
        elif key in ours and value != mine and key not in _FREE:
            raise UsageError(
                f"{where}: sets {name} to {json.dumps(value)[:80]}, but the engine needs "
                f"{json.dumps(mine)[:80]}; remove it from the file"
            )
        else:
            ours[key] = value
