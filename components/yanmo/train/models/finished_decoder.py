"""The model that a training ends with, as it is written: whole, whatever of it was trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.hf_export import Symbols, describe, save
from yanmo.model.lora import merge_file, write_adapter
from yanmo.model.weights_check import WEIGHTS
from yanmo.store.output import Output
from yanmo.train.config import TrainConfig
from yanmo.train.models.first_decoder import lora_of
from yanmo.train.models.starting_model import CONFIG

ADAPTER = "adapter"
"""Folder, beside the merged model, of what was trained by LoRA."""


def write_finished(
    folder: Path,
    config: DecoderConfig,
    weights: dict[str, Tensor],
    symbols: Symbols,
    tokenizer_files: Sequence[Path],
) -> list[str]:
    """Write a model of which every weight was trained; returns the names of its files."""
    decoder = Decoder(config)
    if config.tie_word_embeddings:
        weights = weights | {"lm_head.weight": weights["model.embed_tokens.weight"]}
    decoder.load_state_dict(weights)
    return save(decoder, symbols, folder, tokenizer_files)


def write_merged(
    folder: Path,
    config: DecoderConfig,
    weights: dict[str, Tensor],
    symbols: Symbols,
    tokenizer_files: Sequence[Path],
    options: TrainConfig,
    base: Output,
) -> list[str]:
    """Write a model with what was trained beside it added, and that alone; returns the names of all files.

    It is added to the weights as the store has them, which a training in bf16 has rounded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base.path(WEIGHTS)
    lora = lora_of(options)
    merge_file(base.path(CONFIG).parent, config, folder / WEIGHTS, weights, lora.scale)
    beside = write_adapter(folder / ADAPTER, weights, lora, f"train/{base.manifest.key}", base.content_digest)
    names = [WEIGHTS, *describe(config, symbols, folder, tokenizer_files)]
    return sorted([*names, *(f"{ADAPTER}/{name}" for name in beside)])
