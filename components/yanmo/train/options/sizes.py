"""Named sizes and presets: options that other options stand for.

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
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.options.fields import Options, Scalar, opt
from yanmo.options.nearest import did_you_mean
from yanmo.options.values import brief
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
