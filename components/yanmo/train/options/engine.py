"""Options of the machinery under a training: what computes, where, and in how much memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from yanmo.common.options import Scalar, StageOptions, opt
from yanmo.train.options.sizes import SIZES, bundle

AUTO = -1
"""Of --micro-batch: find the largest that fits."""
CPU_RANKS = 2
"""Of a training on a CPU, whatever its cores: sums over other ranks have other last digits."""


def fitting_ranks(batch_rows: int, micro_batches: Iterable[int], most: int) -> int:
    """The largest number of ranks up to `most` that shares out a batch in whole micro batches; 0 for none.

    Args:
        micro_batches: those that are not above 0 are free to be any.
    """
    wanted = [rows for rows in micro_batches if rows > 0]

    def fits(ranks: int) -> bool:
        return batch_rows % ranks == 0 and all((batch_rows // ranks) % rows == 0 for rows in wanted)

    return next((ranks for ranks in range(most, 0, -1) if fits(ranks)), 0)


@dataclass(frozen=True, kw_only=True)
class EngineOptions(StageOptions):
    """Execution options: the same model, to the last digits, made in another way."""

    size: str = opt(
        "tiny",
        "shape, context, batch and rates that --layers, --width and so on begin from (docs/train.md)",
        kind="execution",
        form=False,
        choices=tuple(SIZES),
    )
    preset: str = opt(
        "",
        "options by memory or purpose, below --config and flags: a name of docs/train.md, or a YAML file",
        kind="execution",
        form=False,
    )
    ranks: int = opt(
        CPU_RANKS,
        "worker processes, one per GPU or group of cores",
        kind="execution",
        form=False,
        auto="one per visible GPU, on a CPU {default}; as many of them as share out the batch",
    )
    threads: int = opt(1, "CPU threads per rank", kind="execution", form=False)
    micro_batch: int = opt(
        0,
        "rows per forward on one rank; 0 takes all of the rank's share, auto the largest that fits",
        kind="execution",
        form=False,
        words={"auto": AUTO},
    )
    backend: str = opt(
        "deepspeed",
        "what computes: DeepSpeed, or torch alone (MPS, comparison)",
        kind="execution",
        form=False,
        choices=("deepspeed", "torch"),
    )
    zero_stage: int = opt(
        1,
        "DeepSpeed ZeRO stage: the ranks share out 1 optimizer states, 2 gradients too, 3 weights too",
        kind="execution",
        form=False,
    )
    deepspeed_config: str = opt(
        "", "JSON file merged into DeepSpeed's configuration", kind="execution", form=False
    )
    offload: str = opt(
        "none",
        "optimizer: weights' fp32 copy and optimizer states in the CPU's memory, for CUDA",
        kind="execution",
        form=False,
        choices=("none", "optimizer"),
    )
    device: str = opt(
        "auto",
        "where to train",
        kind="execution",
        form=False,
        choices=("auto", "cpu", "cuda", "mps"),
        auto="cuda where torch sees a GPU, else cpu",
    )
    attention: str = opt(
        "auto",
        "how documents of a row are kept apart",
        kind="execution",
        form=False,
        choices=("auto", "varlen", "flash", "masked"),
        auto="varlen on CUDA in bf16, else flash where rows hold one document, else masked",
    )
    compile: bool = opt(
        False,
        "compile the layers (torch.compile); on a CPU needs a C++ compiler, on CUDA one of C",
        kind="execution",
        form=False,
        auto="true on CUDA where a compiler is, without --gradient-checkpointing, --offload and ZeRO-3; "
        "else {default}",
    )
    auto_again: bool = opt(
        False,
        "decide on this machine what is left to auto, in the place of what an earlier run of the same "
        "options recorded; another precision is another model",
        kind="environment",
        form=False,
    )
    gradient_checkpointing: bool = opt(
        False,
        "compute activations again in the backward instead of keeping them",
        kind="execution",
        form=False,
    )
    tf32: bool = opt(True, "TF32 for fp32 matrix products on CUDA", kind="execution", form=False)
    cudnn_attention: bool = opt(
        True, "let torch choose cuDNN's attention on CUDA (flash path only)", kind="execution", form=False
    )
    allocator: str = opt(
        "expandable_segments:True",
        "PYTORCH_ALLOC_CONF of the workers on CUDA; one in the environment wins",
        kind="execution",
        form=False,
    )
    memory_gib: float = opt(
        0.0,
        "memory of one device (or of this machine) to plan for, GiB; 0 takes what there is",
        kind="execution",
        form=False,
    )

    @classmethod
    def bundles(cls, values: dict[str, Any]) -> dict[str, Scalar]:
        """What --size and --preset stand for; a preset wins over a size."""
        return bundle(str(values["size"]), str(values["preset"]))

    @classmethod
    def left_open(cls, values: dict[str, Any]) -> dict[str, Scalar]:
        """Ranks of a CPU that share out the batch; what GPUs change is only known later (automatic.py)."""
        rows = (values["micro_batch"], values["night_micro_batch"])
        most = 1 if values["device"] == "mps" else CPU_RANKS
        return {"ranks": fitting_ranks(values["batch_rows"], rows, most) or most}

    def _is_size_left_out(self) -> bool:
        """Whether a size was named to the class itself, which cannot tell given options from defaults."""
        defaults = {field.name: field.default for field in fields(self)}
        return bool(SIZES[self.size]) and all(getattr(self, n) == defaults[n] for n in SIZES[self.size])

    def _machine_contradictions(self) -> list[str]:
        """What cannot be, whatever the machine."""
        problems = []
        if self._is_size_left_out():
            problems.append(
                f"size={self.size!r} stands for other options only through yanmo.common.options.load: every "
                f"one of {', '.join(SIZES[self.size])} is still the default"
            )
        if self.zero_stage not in (1, 2, 3):
            problems.append(f"--zero-stage {self.zero_stage}: expected 1, 2 or 3")
        if self.backend == "torch":
            if self.zero_stage != 1:
                problems.append(
                    f"--backend torch shares out nothing: --zero-stage {self.zero_stage} is DeepSpeed's"
                )
            if self.deepspeed_config:
                problems.append("--deepspeed-config has no effect with --backend torch")
            if self.offload != "none":
                problems.append(f"--offload {self.offload} is DeepSpeed's; --backend torch has none")
        if self.device == "mps" and (self.backend != "torch" or self.ranks != 1):
            problems.append("--device mps trains with --backend torch and --ranks 1")
        if self.device == "cpu":
            if self.offload != "none":
                problems.append(f"--offload {self.offload} moves states to the CPU: none on --device cpu")
            if self.attention == "varlen":
                problems.append("--attention varlen needs CUDA; --device cpu has flash and masked")
        return problems
