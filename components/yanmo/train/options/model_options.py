"""Options of the model: its shape and its first weights."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import Options, names_of, opt


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
    residual_start: str = opt(
        "zero",
        "first weights of the matrices that write to the residual stream: zero, or depth (the "
        "standard deviation of the others / sqrt(2 layers))",
        choices=("zero", "depth"),
    )
    embedding_std: float = opt(1.0, "standard deviation of the first embedding")

    def contradictions(self) -> list[str]:
        """Return what cannot be together."""
        if self.start == "bigram" and self.residual_start != "zero":
            return ["--start bigram needs --residual-start zero: at first the layers must write nothing"]
        return []


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
