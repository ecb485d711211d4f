"""A Qwen3-type model as transformers saves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models


@pytest.fixture
def store(tmp_path) -> Path:
    """A folder for a store, with nothing in it."""
    return tmp_path / "store"


@pytest.fixture
def folder(tmp_path):
    """A model that transformers saved in several files, with a tokenizer that gives every text back."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    shape = {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {
        "num_key_value_heads": 1,
        "head_dim": 16,
        "intermediate_size": 48,
        "max_position_embeddings": 32,
    }
    config = transformers.Qwen3Config(**shape, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)
    model = transformers.Qwen3ForCausalLM(config)
    place = tmp_path / "hf"
    model.save_pretrained(place, max_shard_size="60KB")
    pieces = [
        *(f"<{i}>" for i in range(8)),
        *(f"<0x{i:02X}>" for i in range(256)),
        *"春眠不觉晓处闻啼鸟，。\n",
    ]
    vocabulary = [(piece, -9.0 if len(piece) > 1 else -5.0) for piece in pieces]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=3, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.save(str(place / "tokenizer.json"))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (place / name).write_text(json.dumps({"bos_token": "<0>", "eos_token": "<1>"}))
    return place
