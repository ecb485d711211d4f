"""Sampling is seeded, ends at the end token and keeps to what is allowed."""

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


def test_equal_seeds_give_equal_texts_and_others_do_not(writer):
    first, again, other = (
        generate(writer, [[0, 4]] * 3, eos=1, generator=seeded(n), max_new_tokens=30) for n in (1, 1, 2)
    )
    assert first == again != other


def test_texts_stop_before_the_end_token_and_hold_nothing_forbidden(writer):
    texts = generate(writer, [[0]] * 40, eos=1, generator=seeded(0), max_new_tokens=40, forbidden=[2, 3])
    assert any(len(t) < 40 for t in texts)
    assert not {1, 2, 3} & {token for text in texts for token in text}


def test_temperature_zero_and_a_tiny_nucleus_both_take_the_likeliest(model, writer):
    greedy = generate(writer, [[0, 4]], eos=1, generator=seeded(0), temperature=0, max_new_tokens=12)
    nucleus = generate(writer, [[0, 4]], eos=1, generator=seeded(9), top_p=1e-9, max_new_tokens=12)
    assert greedy == nucleus
    for tiny in (1e-300, 1e-40):  # logits divided by it are infinite
        cold = generate(writer, [[0, 4]], eos=1, generator=seeded(9), temperature=tiny, max_new_tokens=12)
        assert cold == greedy
    expected = model(torch.tensor([[0, 4]]))[0, -1].argmax().item()
    assert greedy[0][:1] == ([] if expected == 1 else [expected])


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


@pytest.mark.parametrize("prompt", [[0], [0, 4], list(range(2, 10))])
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


def test_a_prompt_longer_than_the_context_is_read_from_its_latter_half(model, writer):
    prompt = list(range(2, 16))
    written = generate(
        writer, [prompt], eos=1, generator=seeded(0), temperature=0, max_new_tokens=9, forbidden=[0, 1]
    )
    assert written == [read_anew(model, prompt, 9)]
