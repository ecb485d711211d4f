"""The filters keep what those of transformers keep, and tokens are drawn as likely as they say."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.model.generation.choosing import Choice, chosen, own_draws, probabilities, shared_draws

ROWS, WORDS = 3, 40


def theirs(logits, choice, texts):
    """The probabilities by transformers' own processors, in the order of its `generate`."""
    hf = pytest.importorskip("transformers").generation
    steps = [hf.RepetitionPenaltyLogitsProcessor(choice.repetition_penalty)]
    steps.append(hf.TemperatureLogitsWarper(choice.temperature))
    if choice.top_k:
        steps.append(hf.TopKLogitsWarper(choice.top_k))
    if choice.top_p < 1:
        steps.append(hf.TopPLogitsWarper(choice.top_p))
    if choice.min_p > 0:
        steps.append(hf.MinPLogitsWarper(choice.min_p))
    return torch.softmax(hf.LogitsProcessorList(steps)(texts, logits.clone()), -1)


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32),
    spread=st.sampled_from([0.1, 1.0, 5.0, 30.0]),
    temperature=st.floats(0.05, 5.0),
    top_k=st.integers(0, WORDS + 5),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
    penalty=st.floats(0.5, 3.0),
)
def test_every_filter_leaves_the_probabilities_of_transformers(
    seed, spread, temperature, top_k, top_p, min_p, penalty
):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(ROWS, WORDS, generator=generator) * spread
    texts = torch.randint(0, WORDS, (ROWS, 12), generator=generator)
    seen = torch.zeros(ROWS, WORDS, dtype=torch.bool).scatter_(1, texts, True)
    choice = Choice(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty
    )
    wanted = theirs(logits, choice, texts).double()
    found = probabilities(logits.clone(), choice, seen)
    differ = (found > 0) != (wanted > 0)
    if differ.any():  # a token on the edge: the mass before it is top_p, or its share min_p, to fp32's digits
        assert int(differ.sum()) <= ROWS and float(torch.maximum(found, wanted)[differ].max()) < 0.5
        plain = theirs(logits, Choice(temperature=temperature, repetition_penalty=penalty), texts)
        assert _is_on_an_edge(plain.double(), choice, differ)
    else:
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def _is_on_an_edge(mass, choice, differ):
    for row in differ.any(1).nonzero().flatten().tolist():
        falls = mass[row].sort(descending=True).values
        if choice.top_k:
            falls = falls[: choice.top_k]
        falls = falls / falls.sum()
        before = (falls.cumsum(0) - falls - choice.top_p).abs().min()
        share = float((mass[row] / mass[row].max() - choice.min_p).abs().min())
        if min(float(before), share) > 1e-5:
            return False
    return True


def test_no_edge_is_needed_for_ordinary_settings():
    """As the property lets tokens on an edge differ: here none does."""
    logits, texts = torch.randn(64, 500, generator=torch.Generator().manual_seed(0)) * 3, torch.zeros(64, 1)
    choice = Choice(temperature=0.8, top_k=50, top_p=0.9, min_p=0.02)
    wanted = theirs(logits, choice, texts.long()).double()
    torch.testing.assert_close(probabilities(logits.clone(), choice), wanted, rtol=1e-5, atol=1e-8)


def test_tokens_are_drawn_as_often_as_their_probability_says():
    logits = torch.randn(1, 12, generator=torch.Generator().manual_seed(2)) * 2
    choice = Choice(temperature=0.7, top_p=0.9)
    wanted, draws, number = probabilities(logits.clone(), choice)[0].numpy(), own_draws(5, 0), 20_000
    drawn = chosen(logits.expand(number, -1).clone(), choice, None, [draws(i) for i in range(number)])
    shares = np.bincount(drawn, minlength=12) / number
    assert np.abs(shares - wanted).max() < 5 * np.sqrt(0.25 / number)
    assert set(np.flatnonzero(shares)) <= set(np.flatnonzero(wanted))


def test_the_likeliest_token_needs_no_random_number_and_forbidden_ones_never_come():
    logits = torch.tensor([[0.0, 3.0, 2.0, 1.0]])
    assert chosen(logits.clone(), Choice(temperature=0), None, [0.0]) == [1]
    assert chosen(logits.clone(), Choice(temperature=0, forbidden=[1]), None, [0.0]) == [2]
    seen = torch.tensor([[False, True, False, False]])
    assert chosen(logits.clone(), Choice(temperature=0, repetition_penalty=2.0), seen, [0.0]) == [2]
    for number in (0.0, 0.5, np.nextafter(1, 0)):
        assert chosen(logits.clone(), Choice(forbidden=[3, 1]), None, [number])[0] in (0, 2)


@pytest.mark.parametrize("edge", [0.0, float(np.nextafter(1, 0))])
def test_the_ends_of_the_unit_interval_draw_tokens_that_have_a_mass(edge):
    logits = torch.full((1, 9), -torch.inf)
    logits[0, 4] = 0.0
    assert chosen(logits, Choice(), None, [edge]) == [4]


def test_random_numbers_of_a_text_are_its_own_and_shared_ones_come_in_blocks():
    first, again, other = (own_draws(*each) for each in ((1, 0), (1, 0), (1, 1)))
    numbers = [first(i) for i in range(150)]
    assert numbers == [again(i) for i in range(150)] != [other(i) for i in range(150)]
    assert all(0 <= number < 1 for number in numbers) and len(set(numbers)) == 150
    draws = shared_draws(torch.Generator().manual_seed(1), 3)
    plain = torch.Generator().manual_seed(1)
    for step in range(3):
        wanted = torch.rand(3, 1, generator=plain, dtype=torch.float64).flatten().tolist()
        assert [draw(step) for draw in draws] == wanted
