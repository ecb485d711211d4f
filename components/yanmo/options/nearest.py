"""The known name that somebody may have meant: one that is spelled nearly so, or another trainer's.

The table is of what guides and other trainers call things (docs/how-to/settings.md).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

_ROWS = "--micro-batch for the rows of one forward on a device, --batch-rows for those of a step"
_FORWARDS = "no option: a step has --batch-rows / --ranks / --micro-batch forwards"
_LOADER = "--prefetch-batches: rows are mapped memory, so that there are no loader processes"
_WORKERS = "--workers"
_CONTEXT = "--context"
_PRECISION = "--precision bf16, fp16 or fp32"
_RATES = "--adam-learning-rate and --muon-learning-rate (--optimizer adamw has the first alone)"
_MONITOR = "--monitor and --monitor-every"
_VALID = "--valid-every in steps, --valid-characters for how much text"
_STOPPING = "--early-stopping with a number of validations, --early-min-delta"
_RESTARTS = "--schedule sgdr, --restart-steps"
_NIGHT = "--night 21:00-08:00, --night-power-watts"

GUIDE_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("batch_size", "per_device_train_batch_size"), (_ROWS,)),
    **dict.fromkeys(
        ("gradient_accumulation_steps", "accumulation_steps", "accumulate_grad_batches"), (_FORWARDS,)
    ),
    **dict.fromkeys(("num_workers", "dataloader_num_workers"), (_WORKERS, _LOADER)),
    **dict.fromkeys(("persistent_workers", "prefetch_factor"), (_LOADER,)),
    **dict.fromkeys(
        ("max_sequence_length", "context_length", "max_length", "block_size", "seq_len"), (_CONTEXT,)
    ),
    **dict.fromkeys(
        ("use_dynamic_padding", "dynamic_padding"), ("--packing, which leaves hardly any padding",)
    ),
    **dict.fromkeys(("use_amp", "amp", "mixed_precision", "bf16", "fp16"), (_PRECISION,)),
    **dict.fromkeys(("compile_model", "torch_compile"), ("--compile",)),
    **dict.fromkeys(("devices", "num_devices", "n_gpus", "nproc_per_node"), ("--ranks",)),
    **dict.fromkeys(("d_model", "hidden_size", "n_embd", "embed_dim"), ("--width",)),
    **dict.fromkeys(("nhead", "num_heads", "n_head", "num_attention_heads"), ("--heads",)),
    **dict.fromkeys(("num_layers", "n_layer", "num_hidden_layers"), ("--layers",)),
    **dict.fromkeys(("dim_feedforward", "intermediate_size"), ("--feed-forward",)),
    **dict.fromkeys(("learning_rate", "lr", "max_lr"), (_RATES,)),
    **dict.fromkeys(("max_grad_norm", "gradient_clip_val", "grad_clip", "clip_grad_norm"), ("--clip",)),
    **dict.fromkeys(("num_epochs", "max_epochs", "num_train_epochs"), ("--epochs",)),
    **dict.fromkeys(("max_steps", "num_steps", "max_iters"), ("--steps",)),
    **dict.fromkeys(("warmup_ratio", "warmup_epochs"), ("--warmup-share",)),
    **dict.fromkeys(("lr_scheduler", "scheduler", "lr_scheduler_type"), ("--schedule",)),
    **dict.fromkeys(("num_restarts", "warm_restarts", "t_0"), (_RESTARTS,)),
    **dict.fromkeys(("eta_min", "min_lr", "min_lr_ratio"), ("--floor, a share of the peak",)),
    **dict.fromkeys(
        ("checkpoint_every", "save_steps", "save_every"), ("--checkpoint-steps or --checkpoint-seconds",)
    ),
    **dict.fromkeys(
        ("val_check_interval", "validation_interval", "val_interval", "limit_val_batches"), (_VALID,)
    ),
    **dict.fromkeys(
        ("patience", "early_stopping_patience", "min_delta", "early_stopping_delta"), (_STOPPING,)
    ),
    **dict.fromkeys(("fast_detection", "disable_metrics_monitoring", "update_frequency"), (_MONITOR,)),
    **dict.fromkeys(("plot_frequency", "logging_steps", "log_interval"), ("--log-every",)),
    **dict.fromkeys(("night_mode", "night_start", "night_end"), (_NIGHT,)),
    **dict.fromkeys(
        ("use_gradient_checkpointing", "activation_checkpointing"), ("--gradient-checkpointing",)
    ),
    **dict.fromkeys(("use_lora", "lora_r"), ("--lora-rank",)),
    **dict.fromkeys(
        ("resume", "resume_from_checkpoint"),
        ("no option: the same command goes on from the last checkpoint (--checkpoint-seconds)",),
    ),
    **dict.fromkeys(
        ("data", "data_path", "data_dir", "train_file", "input_file"), ("--sources", "--token-cache")
    ),
    **dict.fromkeys(("use_augmentation", "data_augmentation"), ("--augment",)),
    **dict.fromkeys(("max_new_tokens", "max_gen_len"), ("--max-tokens", "--sample-tokens")),
}
"""Their name -> hints, of which the first counts whose options the command has."""
VALUES = {
    "gpu": "cuda",
    **dict.fromkeys(("16", "16-mixed", "16-true", "float16", "half", "fp16-mixed"), "fp16"),
    **dict.fromkeys(("bf16-mixed", "bf16-true", "bfloat16"), "bf16"),
    **dict.fromkeys(("32", "32-true", "float32", "fp32-true"), "fp32"),
    **dict.fromkeys(("cosine_with_restarts", "cosine_restarts", "warm_restarts"), "sgdr"),
    **dict.fromkeys(("linear_warmup", "linear_with_warmup"), "linear"),
    **dict.fromkeys(("adam", "adamw_torch"), "adamw"),
}
"""A value as others write it -> ours."""
_OPTION = re.compile(r"--([a-z][a-z-]*)")


def _as_named_here(name: str, known: Collection[str]) -> str:
    """Return the hint for an option's name in other guides; "" for a name of none.

    Args:
        known: the options of the command.
    """
    ours = {each.replace("-", "_") for each in known}
    for text in GUIDE_NAMES.get(name.replace("-", "_").lower(), ()):
        if all(option.replace("-", "_") in ours for option in _OPTION.findall(text)):
            return text
    return ""


def did_you_mean(name: str, known: Iterable[str], mark: str = "") -> str:
    """`; did you mean --steps?` for a name that is nearly one of `known`, else nothing.

    Args:
        mark: what is put before the name that is found, such as `--`.
    """
    names = {each.lower(): each for each in known}
    wanted = name.lower()[:100]
    if said := _as_named_here(wanted, names):
        return f"; here: {said} (docs/how-to/settings.md)"
    meant = VALUES.get(wanted, "")
    found = [meant] if meant in names else difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
    return f"; did you mean {mark}{names[found[0]]}?" if found else ""
