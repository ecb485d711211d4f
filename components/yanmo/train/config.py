"""Options of the training stage; the defaults are the demo's recipe (docs/explanation/recipe.md).

Each group of options is in a file of `options/`, or in the file that uses it (schedule.py, time_window.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import flag, input_ref
from yanmo.options.shared import StageOptions
from yanmo.stage.declaration import Stage
from yanmo.train.metrics.declared import METRICS
from yanmo.train.options.machine_options import (
    EngineOptions,
    NodesOptions,
    left_backend,
    left_to_the_launcher,
)
from yanmo.train.options.measuring_options import CheckpointOptions, HealthOptions, MeasuringOptions
from yanmo.train.options.recipe_options import (
    DataOptions,
    HeadOptions,
    LoraOptions,
    ModelOptions,
    OptimizerOptions,
    SizeOptions,
    StartOptions,
    left_to_lora,
    left_to_size,
    num_parameters,
    shape_of,
)
from yanmo.train.schedule import ContinuedOptions, ScheduleOptions
from yanmo.train.time_window import HoursOptions


@dataclass(frozen=True, kw_only=True)
class TrainConfig(
    SizeOptions,
    ModelOptions,
    StartOptions,
    LoraOptions,
    DataOptions,
    OptimizerOptions,
    HeadOptions,
    ScheduleOptions,
    ContinuedOptions,
    EngineOptions,
    NodesOptions,
    MeasuringOptions,
    CheckpointOptions,
    HealthOptions,
    HoursOptions,
    StageOptions,
):
    """Train a language model on a token cache, with DeepSpeed, one rank per device, and exact resume."""

    token_cache: str = input_ref("token cache to train on", stages=("tokenize",))
    model: str = input_ref(
        "model to start from; with none, a new one", stages=("train",), optional=True, default="none"
    )

    @classmethod
    def left_open(cls, values: dict[str, object]) -> dict[str, str | int | float | bool]:
        """Return the options that nobody gave, on a CPU (automatic.py adapts to GPUs)."""
        others = left_backend(values) | left_to_the_launcher(values) | left_to_lora(values)
        return {**super().left_open(values), **others, **left_to_size(values)}

    def contradictions(self) -> list[str]:
        """Return the options of different groups that contradict each other."""
        return [*self._wrong_nodes(), *self._wrong_rows(), *self._wrong_start(), *self._unvalidated()]

    def _wrong_nodes(self) -> list[str]:
        if self.nnodes == 1:
            return []
        problems = []
        if self.device == "mps":
            problems.append(f"--device mps trains on one machine: leave out --nnodes {self.nnodes}")
        if self.benchmark:
            problems.append(f"--benchmark measures one machine: leave out --nnodes {self.nnodes}")
        return problems

    def _wrong_rows(self) -> list[str]:
        if self.batch_rows % self.world_size:
            nodes = f" on each of --nnodes {self.nnodes}" if self.nnodes > 1 else ""
            return [
                f"--batch-rows {self.batch_rows} does not divide among --ranks {self.ranks}{nodes}; "
                "give a multiple of the ranks"
            ]
        if self.micro_batch > 0 and self.rank_rows % self.micro_batch:
            return [
                f"--micro-batch {self.micro_batch} does not divide the {self.rank_rows} rows of a rank "
                f"(--batch-rows / --ranks{' / --nnodes' * (self.nnodes > 1)}): give a number that does"
            ]
        return []

    def _wrong_start(self) -> list[str]:
        problems = []
        if self.lora_rank and self.optimizer == "muon":
            problems.append(
                f"--lora-rank {self.lora_rank} needs --optimizer adamw (with an --adam-learning-rate such as "
                "0.0002): Muon would give both narrow matrices updates of full rank"
            )
        if self.attention == "flash" and self.packing != "one":
            problems.append(
                f"--attention flash does not keep documents apart, and --packing {self.packing} puts "
                "several into a row: give --packing one, or --attention masked"
            )
        if self.tied_head and self.start == "bigram":
            problems.append(
                "--tied-head excludes --start bigram, as p(next|this) is not symmetric: give --start random"
            )
        if self.width == 1 and self.start == "bigram":
            problems.append("--width 1 has no room for --start bigram: give a larger one, or --start random")
        return problems

    def _unvalidated(self) -> list[str]:
        asks = [("early_stopping", self.early_stopping), ("schedule", self.schedule == "plateau")]
        if self.valid_every and self.valid_characters:
            return []
        return [
            f"{flag(name)} {getattr(self, name)} needs validations: give --valid-every"
            for name, is_used in asks
            if is_used
        ]

    def watts(self, *, is_night: bool) -> int:
        """Return the power limit of each GPU, watts; 0 for its own."""
        return (is_night and self.night_power_watts) or self.power_watts

    def num_parameters(self, vocab_size: int) -> int:
        """Return the number of parameters of a new model with so many tokens."""
        return num_parameters(shape_of(self), vocab_size)

    @property
    def world_size(self) -> int:
        """Ranks of all nodes."""
        return self.ranks * self.nnodes

    @property
    def rank_rows(self) -> int:
        """Rows of one rank in one optimizer step."""
        return self.batch_rows // self.world_size

    def is_helper(self) -> bool:
        """Return whether another node commits what this one helps to make."""
        return self.node_rank > 0

    @property
    def micro_rows(self) -> int:
        """Rows of one forward pass on one rank; with --micro-batch 0 or auto all rows of the rank."""
        return self.micro_batch if self.micro_batch > 0 else self.rank_rows

    @property
    def accumulation(self) -> int:
        """Forward passes (micro batches) of one rank in one optimizer step."""
        return self.rank_rows // self.micro_rows


STAGE = Stage(
    name="train",
    image="train",
    revision=2,
    config=TrainConfig,
    outputs={"model": "Model", "metrics": "Metrics"},
    metrics=METRICS,
)
