import numpy as np
import pytest

from yanmo.tools.tokenizer.scores import recommendation, scores

CHARACTERS = np.random.default_rng(0).integers(50, 500, 400).astype(float)


def bits(per_character: float, noise: float, seed: int) -> np.ndarray:
    """Documents of about so many bits per character; they share what makes a document hard."""
    hard = np.random.default_rng(1).normal(0, 1, len(CHARACTERS))
    own = np.random.default_rng(seed).normal(0, noise, len(CHARACTERS))
    return CHARACTERS * (per_character + hard + own)


def test_bits_are_of_all_documents_together_and_the_best_comes_first():
    found = scores({"a": bits(9.0, 0.01, 2), "b": bits(8.0, 0.01, 3)}, CHARACTERS)
    assert list(found) == ["b", "a"]
    assert found["a"].bits_per_character == pytest.approx(
        bits(9.0, 0.01, 2).sum() / CHARACTERS.sum(), abs=1e-4
    )
    assert found["a"].interval[0] < found["a"].bits_per_character < found["a"].interval[1]
    assert found["b"].behind == 0 and found["b"].behind_interval == (0, 0)


def test_difference_on_the_same_documents_is_surer_than_each_score():
    """Both figures are uncertain by 0.1, but the documents that are hard are hard for both."""
    found = scores({"a": bits(8.02, 0.01, 2), "b": bits(8.0, 0.01, 3)}, CHARACTERS)
    low, high = found["a"].interval
    assert low < found["b"].bits_per_character < high
    assert found["a"].is_clear and not found["b"].is_clear


def test_clear_winner_is_named_with_its_lead():
    found = scores({"a": bits(9.0, 0.1, 2), "b": bits(8.0, 0.1, 3), "c": bits(9.5, 0.1, 4)}, CHARACTERS)
    result = recommendation(found, {"a": 1.5, "b": 1.0, "c": 1.2})
    assert (
        result.startswith("Take b: 7.957 bits")
        and "fewer than a, the next" in result
        and result.endswith(").")
    )


def test_what_cannot_be_told_apart_is_reported_and_the_cheapest_is_taken():
    found = scores({"a": bits(8.0, 1.0, 2), "b": bits(8.0, 1.0, 3), "c": bits(9.5, 0.1, 4)}, CHARACTERS)
    result = recommendation(found, {"a": 1.1, "b": 1.0, "c": 1.2})
    assert "cannot tell b apart" in result and "take a, which makes the fewest tokens" in result


def test_same_bits_give_the_same_intervals():
    table = {"a": bits(8.0, 1.0, 2), "b": bits(8.1, 1.0, 3)}
    assert scores(table, CHARACTERS) == scores(table, CHARACTERS)
