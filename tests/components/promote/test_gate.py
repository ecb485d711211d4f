import numpy as np
import pytest

from yanmo.promote.gate import Rules, judge

RULES = Rules(min_gain=0.003, max_genre_loss=0.05, level=0.95, draws=2000, seed=0)
DOCUMENTS = {"诗": 400, "词": 200, "文": 90, "赋": 45}


def scores(gain, *, noise=0.3, seed=0, documents=None):
    """Genre -> paired scores; the champion has 8 bits per character, the challenger `gain` fewer.

    `gain` by genre or for all. `noise`: standard deviation of a document's difference, bits per character.
    """
    draw, result = np.random.default_rng(seed), {}
    for genre, number in (documents or DOCUMENTS).items():
        characters = draw.integers(20, 200, number).astype(float)
        champion = characters * (8 + draw.normal(0, 0.5, number))
        fewer = gain.get(genre, 0.0) if isinstance(gain, dict) else gain
        challenger = champion - characters * (fewer + draw.normal(0, noise, number))
        result[genre] = np.stack([characters, challenger, champion], 1)
    return result


def test_a_clear_gain_is_promoted():
    verdict = judge(scores(0.2), RULES)
    assert verdict.promote
    assert verdict.sentence.startswith("Promoted: 7.8")
    assert verdict.gain["bits"] == pytest.approx(0.2, abs=0.05)
    assert verdict.gain["interval"][0] > 0


def test_the_gain_is_the_mean_over_genres_and_not_over_documents():
    verdict = judge(scores({"诗": 0.4}, noise=0.0), RULES)
    assert verdict.gain["bits"] == pytest.approx(0.1, abs=1e-9)
    assert verdict.genres["诗"]["gain"] == pytest.approx(0.4, abs=1e-9)


def test_a_gain_within_luck_is_not_promoted():
    verdict = judge(scores(0.03, noise=3.0, seed=5), RULES)
    assert not verdict.promote
    assert "may be luck" in verdict.sentence or "no better" in verdict.sentence


def test_a_sure_but_tiny_gain_is_not_promoted():
    verdict = judge(scores(0.01, noise=0.001), RULES)
    assert verdict.gain["interval"][0] > 0
    assert "gain of 0.1" in verdict.sentence and "below the 0.3 % asked for" in verdict.sentence


def test_a_genre_lost_is_not_promoted():
    verdict = judge(scores({"诗": 0.5, "文": 0.5, "赋": 0.5, "词": -0.2}, noise=0.05), RULES)
    assert not verdict.promote
    assert [c.passed for c in verdict.checks] == [True, True, True, False]
    assert "worse in 词 by 0.19" in verdict.sentence


def test_the_champion_itself_is_not_promoted():
    verdict = judge(scores(0.0, noise=0.0), RULES, same_model=True)
    assert verdict.sentence == "Not promoted: the challenger is the champion itself."


def test_a_worse_model_is_told_so():
    assert "no better than the champion" in judge(scores(-0.1), RULES).sentence


def test_one_document_per_genre_is_judged_without_an_interval_of_its_own():
    verdict = judge(scores(0.2, documents={"诗": 1, "词": 30}), RULES)
    assert verdict.genres["诗"]["interval"] is None


def test_equal_seeds_give_equal_verdicts():
    assert judge(scores(0.05), RULES) == judge(scores(0.05), RULES)


def test_equal_models_change_the_crown_in_at_most_one_draw_of_twenty():
    # Differences of real size with random signs: the null. min_gain is off, so that luck has every chance.
    loose = Rules(min_gain=0.0, max_genre_loss=1.0, level=0.95, draws=2000, seed=0)
    few = {"诗": 100, "词": 60, "文": 40, "赋": 30}
    crowned = sum(judge(scores(0.0, seed=seed, documents=few), loose).promote for seed in range(200))
    assert crowned <= 12  # 2.5 % expected: 5; more than 12 has a chance of 0.2 %


def test_a_true_gain_of_one_percent_is_nearly_always_seen():
    assert sum(judge(scores(0.08, seed=seed), RULES).promote for seed in range(50)) >= 45
