"""Texts are written some at a time, and go on beyond the context."""

import pytest
import torch

from yanmo.evaluate.writing.generate import AT_ONCE, generate
from yanmo.model.decoder import Decoder, DecoderConfig
from yanmo.model.generation.writer import Writer


@pytest.fixture(scope="module")
def model() -> Decoder:
    torch.manual_seed(5)
    config = DecoderConfig(
        vocab_size=20,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=48,
        max_position_embeddings=8,
    )
    found = Decoder(config)
    for parameter in found.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return found


@pytest.fixture(scope="module")
def writer(model: Decoder) -> Writer:
    return Writer(model)


def seeded(n: int) -> torch.Generator:
    return torch.Generator().manual_seed(n)


def test_many_texts_are_written_some_at_a_time(writer):
    number = 2 * AT_ONCE + 5
    generator = seeded(3)
    parts = [
        generate(writer, [[0, 4]] * count, eos=1, generator=generator, max_new_tokens=3)
        for count in (AT_ONCE, AT_ONCE, 5)
    ]
    found = generate(writer, [[0, 4]] * number, eos=1, generator=seeded(3), max_new_tokens=3)
    assert found == [text for part in parts for text in part] and len(found) == number


def read_anew(model, prompt, steps):
    """The likeliest tokens, every step reading the whole window: the rule that kept keys must obey."""
    ids, begin, context = list(prompt), 0, model.config.max_position_embeddings
    for _ in range(steps):
        if len(ids) - begin > context:
            begin = len(ids) - context // 2
        ids.append(int(model(torch.tensor([ids[begin:]]))[0, -1, 2:].argmax()) + 2)
    return ids[len(prompt) :]


@pytest.mark.parametrize("prompt", [[0], list(range(2, 10)), list(range(2, 16))])
def test_kept_keys_and_values_change_nothing_also_beyond_the_context(model, writer, prompt):
    written = generate(
        writer,
        [prompt, prompt],
        eos=1,
        generator=seeded(0),
        temperature=0,
        max_new_tokens=30,
        forbidden=[0, 1],
    )
    assert written == [read_anew(model, prompt, 30)] * 2
