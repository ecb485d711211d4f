"""Named sizes and presets: options that other options stand for.

Rates by width: Muon's update has a spectral norm that does not depend on the shape (its factor
max(1, rows / columns)^0.5), so its rate stays (Yang, Simon and Bernstein, "A Spectral Condition for Feature
Learning", 2023). AdamW's rate of the embedding and of the norms stays and the head's falls as 1 / width (Yang
et al., "Tensor Programs V", 2022, table 8). The demo's recipe, width 192, is the one that was tuned
(docs/recipe.md); for the wider ones this is the rule's prediction, not a measurement.
"""

from __future__ import annotations

from pathlib import Path

from yanmo.common.options_file import read_yaml

Options = dict[str, str | int | float | bool]

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
) -> Options:
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


SIZES: dict[str, Options] = {
    "tiny": {},  # the defaults themselves: the demo's 4.3 M
    "small": _size(10, 512, 8, 4, 64, 1536, 512, 64),
    "medium": _size(16, 768, 6, 2, 128, 1920, 1024, 128),
    "large": _size(24, 1024, 8, 2, 128, 3584, 2048, 128),
}
"""With a vocabulary of 8,192 and an untied head 4.3 M, 39.9 M, 108.6 M and 343.9 M parameters."""

PRESETS = Path(__file__).parent / "presets"


def preset_names() -> list[str]:
    """The presets that come with the package."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def read_preset(name: str) -> Options:
    """The options of a preset.

    Raises:
        ValueError: there is none of that name.
    """
    if name.endswith((".yaml", ".yml")):
        return read_yaml(name)
    if name not in preset_names():
        raise ValueError(f"--preset {name}: expected a YAML file or one of {', '.join(preset_names())}")
    return read_yaml(PRESETS / f"{name}.yaml")


def bundle(size: str, preset: str) -> Options:
    """The options that a size and a preset stand for."""
    return {**SIZES.get(size, {}), **(read_preset(preset) if preset else {})}


def num_parameters(options: Options, vocab_size: int) -> int:
    """Parameters of a shape, embedding and head counted in full, norms too.

    Args:
        options: layers, width, heads, kv_heads, head_width, feed_forward, tied_head.
    """
    o = {k: int(v) for k, v in options.items() if isinstance(v, (int, bool))}
    tables = (1 if o.get("tied_head") else 2) * vocab_size * o["width"]
    attention = 2 * (o["heads"] + o["kv_heads"]) * o["head_width"] * o["width"] + 2 * o["head_width"]
    layer = attention + 3 * o["width"] * o["feed_forward"] + 2 * o["width"]
    return tables + o["layers"] * layer + o["width"]
