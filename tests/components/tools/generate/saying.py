"""Models that say what a test wants: a chain of tokens, each of which has one that follows it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer

from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.hf_export import Symbols, save
from yanmo.tokenize.byte_level import BYTES
from yanmo.tokenize.tokenizer_files import tokenizer_json
from yanmo.tokenize.vocabulary import BYTE_SCORE, RESERVED, SPECIAL_SCORE, Vocabulary

CHARACTERS = "春眠不觉晓处闻啼鸟夜来风雨声，。\n abcdefghijklmnopqrstuvwxyz"


def tokenizer_text() -> str:
    """The tokenizer.json of a small vocabulary, as `yanmo tokenize` writes it."""
    pieces = [*RESERVED, *BYTES, *CHARACTERS]
    scores = [SPECIAL_SCORE] * len(RESERVED) + [BYTE_SCORE] * 256 + [-5.0] * len(CHARACTERS)
    return tokenizer_json(Vocabulary(pieces, scores, 1, len(CHARACTERS), 0))


def write_model(place: Path, model: Decoder) -> Path:
    """A folder with a model and its tokenizer."""
    save(model, Symbols(bos=0, eos=1, pad=2, genres=("诗",), tag_ids=(4,)), place)
    (place / "tokenizer.json").write_text(tokenizer_text(), encoding="utf-8")
    return place


def random_model(place: Path, **shape: int) -> Path:
    """A folder with a model of random weights."""
    size = len(RESERVED) + 256 + len(CHARACTERS)
    values = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    values |= {"head_dim": 16, "intermediate_size": 48, "max_position_embeddings": 64}
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(vocab_size=size, **{**values, **shape}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return write_model(place, model)


def saying_model(place: Path, names: Sequence[str], context: int = 64) -> Path:
    """A folder with a model that says the named tokens one after another; each may come once.

    The last of them may be one of before: then it says the same again and again.
    """
    tokenizer = Tokenizer.from_str(tokenizer_text())
    ids = [tokenizer.token_to_id(name) for name in names]
    assert None not in ids, names
    size = tokenizer.get_vocab_size()
    shape = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2}
    model = Decoder(
        DecoderConfig(
            vocab_size=size,
            hidden_size=size,
            intermediate_size=2,
            max_position_embeddings=context,
            **shape,
        )
    )
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter) if parameter.ndim == 2 else torch.nn.init.ones_(parameter)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.lm_head.weight[1] = 1.0  # after any other token: <|eos|>
        for first, second in itertools.pairwise(ids):
            model.lm_head.weight[1, first], model.lm_head.weight[second, first] = 0.0, 5.0
    return write_model(place, model)
