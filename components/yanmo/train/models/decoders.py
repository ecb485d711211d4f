"""The decoder that a training begins with, and the model that it ends with."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yanmo.common.logs import human_seconds
from yanmo.formats.token_cache import TokenCache
from yanmo.model.attention import DTYPES
from yanmo.model.bigram_start import count_bigrams, set_bigram_start
from yanmo.model.decoder import Decoder, DecoderConfig, Lora
from yanmo.model.hf_export import Symbols, describe, load, load_frozen, save
from yanmo.model.lora import adapt, merge_file, write_adapter
from yanmo.model.weights_check import WEIGHTS
from yanmo.store.output import Output
from yanmo.train.config import TrainConfig
from yanmo.train.data import Samples
from yanmo.train.models.starting_model import CONFIG, check_tokenizer

log = logging.getLogger(__name__)

_COUNTED_TOKENS = 50_000_000
"""Tokens at the beginning of the cache in which bigrams are counted."""
_EMBEDDING_STD = 1.0
"""Standard deviation of the first embedding."""
ADAPTER = "adapter"
"""Folder, beside the merged model, of what was trained by LoRA."""


def symbols_of(cache: TokenCache) -> Symbols:
    """Return the special ids of a token cache."""
    known = [(g, t) for g, t in zip(cache.genres, cache.tag_ids, strict=True) if t >= 0]
    return Symbols(
        bos=cache.bos,
        eos=cache.eos,
        pad=cache.special.pad,
        genres=tuple(g for g, _ in known),
        tag_ids=tuple(t for _, t in known),
    )


def decoder_config(options: TrainConfig, vocab_size: int) -> DecoderConfig:
    """Return the shape that the options give."""
    return DecoderConfig(
        vocab_size=vocab_size,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        head_dim=options.head_width,
        intermediate_size=options.feed_forward,
        max_position_embeddings=options.context,
        tie_word_embeddings=options.tied_head,
    )


def new_decoder(options: TrainConfig, cache: TokenCache, samples: Samples, *, draw: bool) -> Decoder:
    """Return a decoder with its first weights.

    Args:
        draw: whether to make the weights; False on ranks that get them from rank 0.
    """
    decoder = Decoder(decoder_config(options, cache.vocab_size))
    if not draw:
        return decoder
    generator = torch.Generator().manual_seed(options.seed)
    decoder.initialize(generator, _EMBEDDING_STD)
    if options.start == "bigram":
        started = time.process_time()
        bigrams = count_bigrams(_pairs(cache, samples), cache.vocab_size)
        set_bigram_start(decoder, bigrams, generator, _EMBEDDING_STD)
        seconds = human_seconds(time.process_time() - started)
        log.info("bigram start from %d kinds of pairs took %s of CPU", len(bigrams.count), seconds)
    return decoder


def _pairs(cache: TokenCache, samples: Samples) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """(token, next token) of the training text, and (tag, first token) of each document."""
    index, left = samples.index, _COUNTED_TOKENS
    tags = np.array(cache.tag_ids, np.int64)[index.genre]
    for shard in np.unique(index.shard):
        tokens = np.array(cache.tokens[shard][:left])
        left -= len(tokens)
        inside = tokens[:-1] != cache.eos
        yield tokens[:-1][inside], tokens[1:][inside]
        first = index.offset[index.shard == shard] + 1
        tag = tags[index.shard == shard]
        counted = (tag >= 0) & (first < len(tokens))
        yield tag[counted], tokens[first[counted]]


def starting_model(model: Output, options: TrainConfig, cache: TokenCache) -> Decoder:
    """Return the decoder of a committed model, to train further, or to train an adapter beside it.

    Raises:
        DataError: it was trained with another tokenizer, or its files are damaged.
    """
    check_tokenizer(model, cache)
    model.path(WEIGHTS)
    folder = model.path(CONFIG).parent
    frozen = DTYPES[options.precision]
    decoder = load_frozen(folder, frozen) if options.lora_rank else load(folder).model
    found = decoder.config
    longest = max(found.max_position_embeddings, options.context)
    decoder.config = dataclasses.replace(found, max_position_embeddings=longest)
    if options.lora_rank:
        adapt(decoder, lora_of(options), options.seed)
    return decoder.train()


def lora_of(options: TrainConfig) -> Lora:
    """Return what the options say is trained beside a frozen model; `--lora-rank` is above 0."""
    return Lora(
        rank=options.lora_rank,
        alpha=options.lora_alpha,
        dropout=options.lora_dropout,
        targets=options.lora_names,
    )


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
