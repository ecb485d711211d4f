"""Options of the recipe: named sizes and presets, shape and first weights, LoRA, what is read, the loss, the
optimizer.

Rates by width: Muon's update has a spectral norm that does not depend on the shape (its factor
max(1, rows / columns)^0.5), so its rate stays (Yang, Simon and Bernstein, "A Spectral Condition for Feature
Learning", 2023). AdamW's rate of the embedding and of the norms stays and the head's falls as 1 / width (Yang
et al., "Tensor Programs V", 2022, table 8). The demo's recipe, width 192, is the one that was tuned
(docs/explanation/recipe.md); for the wider ones this is the rule's prediction, not a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from yanmo.common.errors import UsageError
from yanmo.common.words import did_you_mean
from yanmo.formats.packing_settings import LONGEST_CONTEXT, MODES, Packing
from yanmo.options.fields import Options, Scalar, flag, names_of, opt
from yanmo.options.values import MOST_EXACT, brief
from yanmo.options.yaml_file import read_yaml

Settings = Mapping[str, Scalar]

_TUNED_WIDTH = 192
_TUNED_HEAD_RATE = 0.01


def _size(
    layers: int,
    width: int,
    heads: int,
    kv_heads: int,
    head_width: int,
    feed_forward: int,
    context: int,
    rows: int,
) -> Settings:
    return {
        "layers": layers,
        "width": width,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_width": head_width,
        "feed_forward": feed_forward,
        "context": context,
        "batch_rows": rows,
        "head_learning_rate": round(_TUNED_HEAD_RATE * _TUNED_WIDTH / width, 6),
    }


SIZES: dict[str, Settings] = {
    "tiny": {"frequent_tokens": 2048, "adam_beta2": 0.999},  # the demo: the defaults' shape; see left_to_size
    "small": _size(10, 512, 8, 4, 64, 1536, 512, 64),
    "medium": _size(16, 768, 6, 2, 128, 1920, 1024, 128),
    "large": _size(24, 1024, 8, 2, 128, 3584, 2048, 128),
}
"""With a vocabulary of 8,192 and an untied head 4.3 M, 39.9 M, 108.6 M and 344.0 M parameters."""


def left_to_size(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the steps of `tiny`: a text may be too small for them, which no other part of a size heeds."""
    return {"steps": 750} if values["size"] == "tiny" else {}


PRESETS = Path(__file__).parent / "presets"


def preset_names() -> list[str]:
    """Return the presets that come with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def read_preset(name: str) -> Settings:
    """Return the options of a preset.

    Raises:
        UsageError: there is none of that name.
    """
    if name.endswith((".yaml", ".yml")):
        return read_yaml(name)
    if name not in preset_names():
        names = preset_names()
        raise UsageError(
            f"--preset {brief(name)}: expected a YAML file or one of {', '.join(names)}"
            f"{did_you_mean(name, names)}"
        )
    return read_yaml(PRESETS / f"{name}.yaml")


def bundle(size: str, preset: str) -> Settings:
    """Return the options that a size and a preset stand for."""
    return {**SIZES.get(size, {}), **(read_preset(preset) if preset else {})}


BUNDLED = "what --size and --preset set, else {default}"
"""`auto` text of the options on the run form: a number there would silently win over a preset."""


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options, group="sizes"):
    """Names that stand for several options at once."""

    size: str = opt(
        "tiny",
        "named model shape with its context length, batch, learning rate of the head and what else was "
        "measured for it; any of them that is given by itself wins",
        kind="execution",
        often=True,
        choices=tuple(SIZES),
        auto="{default}",
        form="model_size",
    )
    preset: str = opt(
        "",
        "named settings for a GPU's memory or for a purpose (docs/reference/train.md), or a YAML file of "
        "your own; win over --size; there are: " + ", ".join(preset_names()),
        kind="execution",
        auto="none",
        suggested=tuple(preset_names()),
        form="train_preset",
        often=True,
    )

    @classmethod
    def bundled_by(cls, values: dict[str, Any]) -> str:
        return f"--preset {values['preset']}: " if values["preset"] else ""

    @classmethod
    def bundles(cls, values: dict[str, Any]) -> Settings:
        """Return what --size and --preset stand for; a preset wins over a size."""
        return bundle(str(values["size"]), str(values["preset"]))


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
