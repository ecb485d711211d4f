"""Options of the training stage; the defaults are the demo's recipe (docs/recipe.md)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from yanmo.common.options import input_ref, opt
from yanmo.common.packing_settings import MODES, OVERLAP_LOSS, Packing
from yanmo.common.stage import Stage
from yanmo.train.options.endurance import EnduranceOptions
from yanmo.train.options.engine import AUTO, EngineOptions
from yanmo.train.schedule import SCHEDULES

_BUNDLED = "what --size and --preset say, else {default}"
"""Of options on the run form: a number there would silently win over a preset."""

_TOO_MUCH = {
    "dropout": (1, "nothing would be left of the layers; expected less than 1"),
    **dict.fromkeys(
        ("momentum", "adam_beta1", "adam_beta2"), (1, "gradients would never count; expected less than 1")
    ),
    "memory_share": (0, "leaves no memory; expected more than 0"),
    "twin_share": (0, "trains no twin; expected more than 0"),
}
"""Ends of shares that make no training, and why."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(EngineOptions, EnduranceOptions):
    """Train a language model on a token cache: DeepSpeed under torchrun, exact resume."""

    token_cache: str = input_ref("token cache to train on", stages=("tokenize",))
    model: str = input_ref(
        "model to start from, instead of a new one", stages=("train",), optional=True, default="none"
    )

    steps: int = opt(450, "optimizer steps of the whole training", auto=_BUNDLED)
    batch_rows: int = opt(32, "rows of `context` positions per optimizer step, over all ranks", form=False)
    context: int = opt(64, "positions of a row: tokens that the model sees at once", form=False)
    packing: str = opt(
        "best-fit",
        "how documents become rows: best-fit cuts none that fits; concat cuts one stream; one pads each",
        form=False,
        choices=MODES,
    )
    stride: int = opt(
        0,
        "positions from one window over a document longer than the context to the next; 0 is the context",
        form=False,
    )
    overlap_loss: str = opt(
        "once",
        "loss where windows overlap: once per token and epoch, or in every window",
        form=False,
        choices=OVERLAP_LOSS,
    )
    split_longer_than: int = opt(
        0,
        "best-fit may cut documents of more positions than this to fill rows; 0 cuts at the context only",
        form=False,
    )
    min_piece: int = opt(1, "tokens that each piece of a cut document predicts at least", form=False)
    layers: int = opt(3, "layers of the decoder", form=False)
    width: int = opt(192, "width of the decoder", form=False)
    heads: int = opt(3, "query heads", form=False)
    kv_heads: int = opt(1, "key/value heads; divides the query heads", form=False)
    head_width: int = opt(64, "width of a head", form=False)
    feed_forward: int = opt(512, "inner width of the feed-forward layers", form=False)
    tied_head: bool = opt(False, "use the embedding as the head; excludes --start bigram", form=False)
    start: str = opt(
        "bigram",
        "first weights: a factorization of the training text's bigram statistics, or random",
        form=False,
        choices=("bigram", "random"),
    )
    residual_start: str = opt(
        "zero",
        "matrices that write to the residual stream: zero, or depth: the others' spread / sqrt(2 layers)",
        form=False,
        choices=("zero", "depth"),
    )
    dropout: float = opt(
        0.0, "share (0 to 1) of each layer's output that is dropped while training", form=False
    )
    embedding_std: float = opt(1.0, "standard deviation of the first embedding", form=False)
    optimizer: str = opt(
        "muon",
        "muon: Muon for the layers' matrices and AdamW for the rest; adamw: AdamW for all",
        form=False,
        choices=("muon", "adamw"),
    )
    muon_learning_rate: float = opt(0.02, "peak learning rate of Muon's matrices", auto=_BUNDLED)
    adam_learning_rate: float = opt(
        0.01, "peak learning rate of the embedding (and of AdamW's matrices)", auto=_BUNDLED
    )
    head_learning_rate: float = opt(0.01, "peak learning rate of an untied head", form=False)
    norm_learning_rate: float = opt(0.003, "peak learning rate of the norms' weights", form=False)
    momentum: float = opt(0.95, "Muon's momentum", form=False)
    adam_beta1: float = opt(0.9, "AdamW's decay of the mean gradient", form=False)
    adam_beta2: float = opt(0.95, "AdamW's decay of the mean squared gradient", form=False)
    weight_decay: float = opt(
        0.0, "weight decay of the layers' matrices, times the learning rate", form=False
    )
    clip: float = opt(1.0, "largest norm of the whole gradient; 0 clips nothing", form=False)
    schedule: str = opt(
        "linear",
        "course of the learning rate after the warm-up, down to its floor",
        form=False,
        choices=SCHEDULES,
    )
    decay_share: float = opt(
        0.2, "wsd: share of the steps at the end that lead down to the floor (0 to 1)", form=False
    )
    restart_steps: int = opt(
        0, "sgdr: steps of the first cosine after the warm-up; 0 is a quarter of them", form=False
    )
    restart_factor: float = opt(1.0, "sgdr: length of a cosine by that of the one before", form=False)
    plateau_validations: int = opt(
        3, "plateau: validations without a gain before the learning rate falls", form=False
    )
    plateau_factor: float = opt(0.5, "plateau: what it is multiplied with (0 to 1)", form=False)
    batch_scaling: str = opt(
        "none",
        "scale all learning rates with the batch: by (its tokens / --reference-batch) or the root of that",
        form=False,
        choices=("none", "sqrt", "linear"),
    )
    reference_batch: int = opt(
        2048, "tokens of the batch that the learning rates are meant for (the demo's 32 x 64)", form=False
    )
    early_stopping: int = opt(
        0, "validations without a gain before the training ends; 0 never; the best model is kept", form=False
    )
    early_min_delta: float = opt(
        0.0, "bits per character that count as a gain, for early stopping and the plateau", form=False
    )
    warmup_steps: int = opt(30, "steps over which the learning rate rises from 0", form=False)
    floor: float = opt(0.0, "last learning rate as a share of the peak", form=False)
    precision: str = opt(
        "fp32",
        "of weights and activations; sums and optimizer are fp32",
        form=False,
        choices=("fp32", "bf16"),
        auto="bf16 on GPUs of compute capability 8.0 and above, else {default}",
    )
    tag_share: float = opt(0.5, "share of the documents that show their genre tag (0 to 1)", form=False)
    token_noise: float = opt(
        0.0,
        "share of the fed tokens (0 to 1) replaced by random ones of the training text, anew in each epoch",
        form=False,
    )
    seed: int = opt(0, "seed of the first weights and the order of the data", auto=_BUNDLED)

    twins: int = opt(
        0,
        "short trainings with other seeds, made once for a recipe after its model: they measure how much "
        "of a gain is luck, for promote's margin; 0 measures nothing, then promote assumes",
        kind="execution",
        form=False,
    )
    twin_share: float = opt(0.5, "share (0 to 1) of the steps that a twin has", kind="execution", form=False)
    log_every: int = opt(10, "steps per line of metrics.jsonl", kind="execution", form=False)
    valid_every: int = opt(
        0, "steps between validations; 0 validates at the end only", kind="execution", form=False
    )
    valid_characters: int = opt(
        8000, "most characters of each genre in a validation; 0 skips it", kind="execution", form=False
    )
    checkpoint_steps: int = opt(
        0, "steps between checkpoints; 0 for none by steps", kind="execution", form=False
    )
    checkpoint_seconds: float = opt(
        120.0, "seconds between checkpoints; 0 for none by time", kind="execution", form=False
    )

    def __post_init__(self) -> None:
        for look in (self._wrong_numbers, self._contradictions, self._wrong_hours):
            for problem in look():  # each rests on what the ones before have let pass
                raise ValueError(problem)
        if self.twins == 1:
            raise ValueError("--twins 1 measures nothing: expected 0, or 2 and more, which are compared")
        _ = self.packing_plan  # refuses what contradicts

    def _wrong_hours(self) -> list[str]:
        self.hours()  # raises by itself
        problems = []
        night_only = ("night_micro_batch", "night_memory_share", "night_power_watts")
        given = [name for name in night_only if getattr(self, name)]
        if given and not self.night:
            problems.append(
                f"--{given[0].replace('_', '-')} holds in the hours of --night, which is not given"
            )
        rows = self.night_micro_batch
        if rows and self.rank_rows % rows:
            problems.append(
                f"--night-micro-batch {rows} does not divide the {self.rank_rows} rows of a rank "
                "(--batch-rows / --ranks)"
            )
        return problems

    def by_night(self) -> TrainConfig:
        """The same training with the settings of the night."""
        return dataclasses.replace(
            self,
            micro_batch=self.night_micro_batch or self.micro_batch,
            memory_share=self.night_memory_share or self.memory_share,
            power_watts=self.night_power_watts or self.power_watts,
        )

    def _wrong_numbers(self) -> list[str]:
        least = {
            **dict.fromkeys(("batch_rows", "layers", "width", "heads", "kv_heads", "feed_forward"), 1),
            **dict.fromkeys(("steps", "ranks", "threads", "log_every", "reference_batch"), 1),
            "monitor_every": 1,
            "embedding_std": 0,
            **dict.fromkeys(("restart_factor", "plateau_validations"), 1),
            **dict.fromkeys(("restart_steps", "early_stopping", "early_min_delta"), 0),
            **{"head_width": 2, "micro_batch": AUTO, "twins": 0},
            **dict.fromkeys(("warmup_steps", "memory_gib", "valid_every", "valid_characters"), 0),
            **dict.fromkeys(("checkpoint_steps", "checkpoint_seconds", "clip", "weight_decay"), 0),
            **dict.fromkeys(("nonfinite_steps", "spike_nats", "rewinds", "hang_seconds", "max_seconds"), 0),
            **dict.fromkeys(
                ("night_micro_batch", "power_watts", "night_power_watts", "keep_every", "profile"), 0
            ),
            **dict.fromkeys(
                ("muon_learning_rate", "adam_learning_rate", "norm_learning_rate", "head_learning_rate"), 0
            ),
        }
        problems = [
            f"--{name.replace('_', '-')} {getattr(self, name)}: expected a number of at least {low}"
            for name, low in least.items()
            if not low <= getattr(self, name) < math.inf
        ]
        shares = (
            "twin_share",
            *("tag_share", "token_noise", "floor", "momentum", "adam_beta1", "adam_beta2"),
            *("dropout", "decay_share", "plateau_factor"),
            *("memory_share", "night_memory_share"),
        )
        problems += [
            f"--{name.replace('_', '-')} {getattr(self, name)}: expected 0 to 1"
            for name in shares
            if not 0 <= getattr(self, name) <= 1
        ]
        problems += [
            f"--{name.replace('_', '-')} {getattr(self, name):g}: {why}"
            for name, (wrong, why) in _TOO_MUCH.items()
            if getattr(self, name) == wrong
        ]
        return problems

    def _contradictions(self) -> list[str]:
        problems = self._machine_contradictions()
        if self.batch_rows % self.ranks:
            problems.append(
                f"--batch-rows {self.batch_rows} does not divide among --ranks {self.ranks}; "
                "give a multiple of the ranks"
            )
        elif self.micro_batch > 0 and (self.batch_rows // self.ranks) % self.micro_batch:
            problems.append(
                f"--micro-batch {self.micro_batch} does not divide the {self.batch_rows // self.ranks} rows "
                "of a rank (--batch-rows / --ranks)"
            )
        if self.attention == "flash" and self.packing != "one":
            problems.append(
                f"--attention flash keeps no documents apart: --packing {self.packing} puts several into a "
                "row; give --packing one, or --attention masked"
            )
        for name, used in (("early_stopping", self.early_stopping), ("schedule", self.schedule == "plateau")):
            if used and not (self.valid_every and self.valid_characters):
                problems.append(
                    f"--{name.replace('_', '-')} {getattr(self, name)} looks at validations: give "
                    "--valid-every"
                )
        if self.heads % self.kv_heads:
            problems.append(f"--heads {self.heads} is no multiple of --kv-heads {self.kv_heads}")
        if self.head_width % 2:
            problems.append(f"--head-width {self.head_width}: rotary positions need an even width")
        if self.tied_head and self.start == "bigram":
            problems.append("--tied-head excludes --start bigram: p(next|this) is not symmetric")
        if self.start == "bigram" and self.residual_start != "zero":
            problems.append("--start bigram wants layers that write nothing yet: --residual-start zero")
        if self.warmup_steps >= self.steps > 1 and self.schedule not in ("constant", "plateau"):
            problems.append(
                f"--warmup-steps {self.warmup_steps} leaves none of --steps {self.steps} for the "
                f"{self.schedule} schedule"
            )
        return problems

    @property
    def packing_plan(self) -> Packing:
        """How documents become rows."""
        return Packing(
            context=self.context,
            mode=self.packing,
            stride=self.stride,
            overlap_loss=self.overlap_loss,
            split_longer_than=self.split_longer_than,
            min_piece=self.min_piece,
        )

    @property
    def rank_rows(self) -> int:
        """Rows of one rank in one optimizer step."""
        return self.batch_rows // self.ranks

    @property
    def micro_rows(self) -> int:
        """Rows of one forward on one rank; with --micro-batch auto the most it can become."""
        return self.micro_batch if self.micro_batch > 0 else self.rank_rows

    @property
    def accumulation(self) -> int:
        """Forwards of one rank in one optimizer step."""
        return self.rank_rows // self.micro_rows


STAGE = Stage(
    name="train",
    image="train",
    revision=2,
    config=TrainConfig,
    outputs={"model": "Model"},
    parameters=("status",),
)
