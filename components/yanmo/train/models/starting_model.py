"""Shape and tokenizer of the model that a training starts from, read without torch.

The supervisor checks them, so that a model that does not fit the token cache is refused in the first second,
and memory, disk space and the model card are computed for that model, not from `--layers`, `--width` ...
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.given_file import read_object
from yanmo.formats.token_cache import TokenCache
from yanmo.store.output import Output
from yanmo.train.config import TrainConfig

log = logging.getLogger(__name__)

CONFIG = "config.json"
_SHAPE = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_width": "head_dim",
    "feed_forward": "intermediate_size",
    "tied_head": "tie_word_embeddings",
}
"""Our option -> transformers' name."""


def check_tokenizer(model: Output, cache: TokenCache) -> None:
    """Refuse a starting model whose tokens are not those of the cache.

    Raises:
        DataError: the tokenizer or vocabulary differs, or the tokenizer loses text; says what to do.

    """
    ours, theirs = ([entry.sha256 for entry in x.entries("tokenizer.json")] for x in (cache.tokenizer, model))
    if ours != theirs:
        raise DataError(
            f"{model}: its tokenizer.json ({_short(theirs)}) is not the token cache's ({_short(ours)}); "
            "tokenize with the model's tokenizer (`yanmo tokenize --tokenizer`) or choose another starting "
            "model"
        )
    found = read_object(model.path(CONFIG)).get("vocab_size")
    if not isinstance(found, int) or found < cache.vocab_size:  # Qwen's embeddings have some rows more
        raise DataError(
            f"{model}: vocabulary of {found}, the token cache has {cache.vocab_size}; tokenize with "
            "the tokenizer of the model"
        )


def vocabulary_of(model: Output) -> int:
    """Return the rows of the starting model's embedding, the last of which a tokenizer may leave unused."""
    return int(read_object(model.path(CONFIG))["vocab_size"])


def check_finite(model: Output) -> None:
    """Refuse a starting model whose weights are not finite: training on them ends as if it had diverged.

    Raises:
        DataError: names the file and the tensor.
    """
    from yanmo.model.weights_check import WEIGHTS, check_weights  # few trainings start from a model

    if model.entries(WEIGHTS):
        check_weights(model.path(WEIGHTS).parent)


def _short(digests: list[str]) -> str:
    return digests[0][:12] if digests else "none"


def with_shape_of(options: TrainConfig, model: Output) -> TrainConfig:
    """Return the options with the model's own shape instead of the given one; logs which options had no
    effect."""
    shape = shape_in(read_object(model.path(CONFIG)))
    asked = {name: getattr(options, name) for name in shape}
    other = [f"{name} {shape[name]}, not {asked[name]}" for name in shape if shape[name] != asked[name]]
    if other:
        log.warning("the starting model decides the shape: %s", "; ".join(other))
    # Its first weights are given, so the option has no effect; with another it may contradict.
    changes: dict[str, Any] = {**shape, "start": "random", "size": "tiny"}
    return dataclasses.replace(options, **changes)


def shape_in(config: Mapping[str, Any]) -> dict[str, int | bool]:
    """Return the shape in a config.json, by the names of our options.

    Raises:
        DataError: a part is missing or is not possible.
    """
    missing = [name for name in _SHAPE.values() if name not in config]
    if missing:
        raise DataError(f"{CONFIG} of the starting model lacks {', '.join(missing)}: name another model")
    shape = {ours: config[theirs] for ours, theirs in _SHAPE.items()}
    wrong = [f"{_SHAPE[name]} {value!r}" for name, value in shape.items() if not _is_possible(name, value)]
    if wrong or shape["heads"] % shape["kv_heads"] or shape["head_width"] % 2:
        found = ", ".join(wrong or [f"{_SHAPE[name]} {value}" for name, value in shape.items()])
        raise DataError(
            f"{CONFIG} of the starting model has an impossible shape: {found}; name another model"
        )
    return shape


def _is_possible(name: str, value: Any) -> bool:
    if name == "tied_head":
        return isinstance(value, bool)
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
