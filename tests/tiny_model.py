"""A decoder of 19 thousand parameters, for tests of what surrounds it."""

from __future__ import annotations

from yanmo.model.decoder import DecoderConfig

SHAPE = DecoderConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=48,
    max_position_embeddings=16,
)
