"""Options of the recipe: shape and first weights, LoRA, what is read, the loss, the optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from yanmo.formats.packing_settings import LONGEST_CONTEXT, MODES, Packing
from yanmo.options.fields import Options, Scalar, flag, names_of, opt
from yanmo.options.values import MOST_EXACT
from yanmo.train.options.sizes import BUNDLED


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options, group="model"):
    """Shape of the decoder, in numbers; --size sets them all by one name."""

    layers: int = opt(3, "decoder layers", least=1)
    width: int = opt(192, "width of the decoder (hidden size)", least=1)
    heads: int = opt(3, "attention heads (queries)", least=1)
    kv_heads: int = opt(1, "key/value heads; must divide --heads", least=1)
    head_width: int = opt(64, "width of an attention head", least=2)
    feed_forward: int = opt(512, "inner width of the feed-forward layers", least=1)
    tied_head: bool = opt(False, "use the embedding as the output head too; excludes --start bigram")

    def contradictions(self) -> list[str]:
        """Return what cannot be together."""
        problems = []
        if self.heads % self.kv_heads:
            problems.append(
                f"--heads {self.heads} is no multiple of --kv-heads {self.kv_heads}: change one of them"
            )
        if self.head_width % 2:
            problems.append(f"--head-width {self.head_width}: rotary positions need an even width")
        return problems


@dataclass(frozen=True, kw_only=True)
class StartOptions(Options, group="start"):
    """First weights of a new model."""

    start: str = opt(
        "bigram",
        "first weights: computed from the bigram statistics of the training text, or random",
        choices=("bigram", "random"),
        trial="random",
    )


def shape_of(options: ModelOptions) -> dict[str, str | int | float | bool]:
    """Return the shape of the model, by option."""
    return {name: getattr(options, name) for name in names_of(ModelOptions)}


def num_parameters(shape: dict[str, str | int | float | bool], vocab_size: int) -> int:
    """Return the number of parameters of a shape, embedding and head counted in full, norms too."""
    o = {k: int(v) for k, v in shape.items() if isinstance(v, (int, bool))}
    tables = (1 if o.get("tied_head") else 2) * vocab_size * o["width"]
    attention = 2 * (o["heads"] + o["kv_heads"]) * o["head_width"] * o["width"] + 2 * o["head_width"]
    layer = attention + 3 * o["width"] * o["feed_forward"] + 2 * o["width"]
    return tables + o["layers"] * layer + o["width"]


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options, group="data"):
    """How documents become rows and batches (docs/explanation/packing.md)."""

    batch_rows: int = opt(
        32, "global batch: rows of --context tokens per optimizer step, over all ranks", least=1, often=True
    )
    context: int = opt(
        64,
        "context length: tokens of a row, which the model sees at once",
        least=2,
        most=LONGEST_CONTEXT,
        often=True,
    )
    packing: str = opt(
        "best-fit",
        "how documents become rows: best-fit packs whole documents and cuts only longer ones; concat "
        "cuts one long stream; one pads each document to a row",
        choices=MODES,
    )
    tag_share: float = opt(0.5, "share of the documents that are read with their genre tag", most=1)
    token_noise: float = opt(
        0.0,
        "share of the input tokens that are replaced by random tokens of the training text, others in "
        "each epoch",
        most=1,
    )
    seed: int = opt(
        0,
        "seed of the first weights and of the order of the data",
        form="train_seed",
        most=MOST_EXACT,
        auto=BUNDLED,
        often=True,
    )

    def contradictions(self) -> list[str]:
        """Return what cannot be together."""
        _ = self.packing_plan  # refuses by itself
        return []

    @property
    def packing_plan(self) -> Packing:
        """Return how documents become rows."""
        return Packing(context=self.context, mode=self.packing)


@dataclass(frozen=True, kw_only=True)
class HeadOptions(Options, group="head"):
    """Logits that the head computes in training (docs/explanation/recipe.md)"""

    frequent_tokens: int = opt(
        0,
        "positions whose target is one of so many most frequent tokens compute the logits of these alone, "
        "except a share of them that stands for all: the same gradient on average, for less; 0 computes all "
        "logits everywhere, as a training from --model always does",
        later=True,
    )


EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matrices of a layer."""
_ALL = "all"
_RATE = 0.0002


def left_to_lora(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return what follows from LoRA where nobody gives it: Muon and its rates are for whole matrices."""
    return {"optimizer": "adamw", "adam_learning_rate": _RATE} if values["lora_rank"] else {}


@dataclass(frozen=True, kw_only=True)
class LoraOptions(Options, group="lora"):
    """Training a few numbers beside a frozen model (docs/how-to/pretrained.md)"""

    lora_rank: int = opt(
        0,
        "rank of the matrices that are trained beside the frozen ones of --model; 0 trains all weights; "
        f"above 0 the defaults are --optimizer adamw and --adam-learning-rate {_RATE}",
        most=4096,
        often=True,
        later=True,
    )
    lora_alpha: float = opt(32.0, "what they add is multiplied by this / --lora-rank", above=0, later=True)
    lora_dropout: float = opt(
        0.0, "share of their inputs that is dropped while training", below=1, later=True
    )
    lora_targets: str = opt(
        _ALL,
        f"the layers' matrices that they are put beside, separated by commas: {', '.join(EVERY)}, or all",
        later=True,
        metavar="A,B",
    )

    @property
    def lora_names(self) -> tuple[str, ...]:
        """The matrices that `lora_targets` names, in the order of EVERY."""
        named = {name.strip() for name in self.lora_targets.split(",")}
        return tuple(name for name in EVERY if name in named or _ALL in named)

    def contradictions(self) -> list[str]:
        """Return what cannot be together."""
        unknown = {name.strip() for name in self.lora_targets.split(",")} - {_ALL, *EVERY}
        if unknown:
            known = ", ".join((*EVERY, _ALL))
            return [
                f"--lora-targets: expected names of {known}; found {', '.join(map(repr, sorted(unknown)))}"
            ]
        given = [name for name in ("lora_alpha", "lora_dropout", "lora_targets") if self.is_changed(name)]
        if given and not self.lora_rank:
            return [f"{flag(given[0])} has no effect without LoRA: give --lora-rank"]
        return []


Rule = Literal["muon", "adamw"]
"""How a group of parameters is updated."""


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions(Options, group="optimizer"):
    """Optimizer, peak learning rates, weight decay, dropout."""

    optimizer: str = opt(
        "muon",
        "muon is Muon for the layers' matrices and AdamW for the rest; adamw is AdamW for all",
        choices=get_args(Rule),
        auto=BUNDLED,
        form="train_optimizer",
    )
    muon_learning_rate: float = opt(
        0.02,
        "peak learning rate of the matrices that Muon trains",
        form="train_muon_learning_rate",
        auto=BUNDLED,
    )
    adam_learning_rate: float = opt(
        0.01,
        "peak learning rate of the embedding, and of the matrices under --optimizer adamw",
        form="train_adam_learning_rate",
        auto=BUNDLED,
    )
    head_learning_rate: float = opt(0.01, "peak learning rate of the output head, where it is not tied")
    norm_learning_rate: float = opt(0.003, "peak learning rate of the norm weights")
    momentum: float = opt(0.95, "Muon's momentum", below=1)
    adam_beta1: float = opt(0.9, "AdamW's beta1, the decay of the mean gradient", below=1)
    adam_beta2: float = opt(0.95, "AdamW's beta2, the decay of the mean squared gradient", below=1)
    weight_decay: float = opt(0.0, "weight decay of the layers' matrices, multiplied by the learning rate")
    clip: float = opt(1.0, "gradient clipping: largest norm of the whole gradient; 0 does not clip")
    dropout: float = opt(0.0, "share of each layer's output that is dropped while training", below=1)
