import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from paired import scores

from yanmo.promote.gate.limits import VERSE, parse_limits
from yanmo.promote.gate.noise import Noise
from yanmo.promote.gate.rules import first_champion, judge
from yanmo.promote.gate.verdict import Evidence, Rules

RULES = Rules(min_gain=0.003, max_genre_loss=0.05, level=0.95, draws=2000, seed=0)


def test_a_clear_gain_is_promoted():
    verdict = judge(scores(0.2), RULES, Evidence(contamination=0.0, noise=Noise(sd=0.001, df=15, twins=16)))
    assert verdict.promote
    assert verdict.sentence.en.startswith("Promoted: 7.8")
    assert verdict.gain["bits"] == pytest.approx(0.2, abs=0.05)
    assert verdict.gain["interval"][0] > 0


def test_the_gain_is_the_mean_over_genres_and_not_over_documents():
    verdict = judge(scores({"诗": 0.4}, noise=0.0), RULES)
    assert verdict.gain["bits"] == pytest.approx(0.1, abs=1e-9)
    assert verdict.genres["诗"]["gain"] == pytest.approx(0.4, abs=1e-9)


def test_a_gain_within_luck_is_not_promoted():
    verdict = judge(scores(0.03, noise=3.0, seed=5), RULES)
    assert not verdict.promote
    assert "may be luck" in verdict.sentence.en or "no better" in verdict.sentence.en


def test_a_sure_but_tiny_gain_is_not_promoted():
    verdict = judge(scores(0.01, noise=0.001), RULES)
    assert verdict.gain["interval"][0] > 0
    assert "gain of 0.1" in verdict.sentence.en and "below the 0.3 % asked for" in verdict.sentence.en


def test_a_genre_lost_is_not_promoted():
    verdict = judge(scores({"诗": 0.5, "文": 0.5, "赋": 0.5, "词": -0.2}, noise=0.05), RULES)
    assert not verdict.promote
    assert [c.name for c in verdict.checks if c.passed is False] == ["no_genre_lost"]
    assert "worse in 词 by 0.19" in verdict.sentence.en
    few = judge(scores({"诗": 0.5, "词": -0.4}, noise=0.01, documents={"诗": 10, "词": 9}), RULES)
    assert few.genres["词"]["few_documents"] and not few.genres["诗"]["few_documents"]
    assert "worse in 词 by 0.390 bits (9 texts only)" in few.sentence.en


@pytest.mark.parametrize(
    "few", [{"诗": 100, "词": 60, "文": 40, "赋": 30}, {"诗": 100, "词": 60, "文": 3, "赋": 1}]
)
def test_equal_models_replace_each_other_in_at_most_one_draw_of_twenty(few):
    """By the own spread of the tiny genres it would be 24 %: 48."""
    # Differences of real size with random signs: the null. min_gain is off, so that luck has every chance.
    loose = Rules(min_gain=0.0, max_genre_loss=9.0, level=0.95, draws=2000, seed=0)
    promoted = sum(judge(scores(0.0, seed=seed, documents=few), loose).promote for seed in range(200))
    assert promoted <= 12  # 2.5 % expected: 5; more than 12 has a chance of 0.2 %


def test_a_true_gain_of_one_percent_is_nearly_always_seen():
    assert sum(judge(scores(0.08, seed=seed), RULES).promote for seed in range(50)) >= 45


def test_the_simulation_puts_figures_through_the_rules_about_bits():
    """benchmarks/gate.py knows nothing of samples: no limit on them may refuse what it draws."""
    path = Path(__file__).parents[4] / "benchmarks/gate.py"
    spec = importlib.util.spec_from_file_location("gate_simulation", path)
    simulation = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = simulation  # dataclasses look there
    spec.loader.exec_module(simulation)
    gate, known = simulation.Gate(None, 0.0, False), Evidence()
    assert gate.promotes(scores(0.2), known)
    assert not gate.promotes(scores(0.02), known)
    assert not gate.promotes(scores({"诗": 0.9, "词": -0.2}, noise=0.0), known)


def exact(**gains):
    """Ten equal documents of 100 characters a genre; the champion has 8 bits per character."""
    return {g: np.tile([100.0, 800.0 - 100 * gain, 800.0], (10, 1)) for g, gain in gains.items()}


def test_what_stands_exactly_at_a_limit_is_within_it():
    passed = judge(exact(诗=0.098, 词=-0.05), RULES, Evidence(contamination=1.0))
    assert passed.gain["share"] == RULES.min_gain and passed.genres["词"]["gain"] == -RULES.max_genre_loss
    assert passed.promote
    assert not judge(exact(诗=0.0979, 词=-0.05), RULES).promote
    assert not judge(exact(诗=0.2, 词=-0.0501), RULES).promote


def test_no_gain_at_all_is_not_beyond_doubt():
    nothing_asked = Rules(min_gain=0.0, max_genre_loss=1.0, level=0.95, draws=200, seed=0)
    verdict = judge(exact(诗=0.0), nothing_asked)
    assert [c.name for c in verdict.checks if c.passed is False] == ["beyond_doubt"]


FIT = {"distinct_2": 0.9, "written_share": 1.0}


def judged_by(rules, gain=0.2, **evidence):
    return judge(scores(gain), rules, Evidence(noise=Noise(sd=0.001, df=15, twins=16), **evidence))


def with_limits(text, **more):
    values = {**vars(RULES), "limits": parse_limits(text), **more}
    return Rules(**values)


def test_a_collapsed_model_is_not_promoted_however_good_its_bits_are():
    rules = with_limits("distinct_2>=0.5,written_share>=0.5")
    assert judged_by(rules, guard_metrics=FIT).promote
    verdict = judged_by(rules, guard_metrics={**FIT, "distinct_2": 0.1})
    assert verdict.outcome == "not promoted"
    assert "the model has collapsed" in verdict.sentence.en and "坍塌" in verdict.sentence.zh
    assert not first_champion(8.0, rules, Evidence(guard_metrics={**FIT, "written_share": 0.0})).promote


def test_a_guard_metric_out_of_its_limits_is_named():
    verdict = judged_by(with_limits("copied_8grams<=0.4"), guard_metrics={"copied_8grams": 0.7})
    assert verdict.sentence.en == (
        "Not promoted: a metric is out of its limits: "
        "generated 8-grams found in the training text: at most 0.4, found 0.7."
    )


def test_what_was_not_measured_is_said_first_and_nothing_is_promoted_unless_it_is_accepted():
    needed = with_limits("", must_measure=True)
    for verdict in (judged_by(needed), first_champion(8.0, needed), judged_by(needed, gain=-1.0)):
        assert verdict.outcome == "not promoted" and verdict.checks[0].passed is False
        assert verdict.sentence.en.startswith("Not measured: whether the evaluated texts are in the training")
        assert "--accept-unmeasured contamination" in verdict.sentence.en
        assert verdict.sentence.zh.startswith("未测量：") and "--accept-unmeasured" in verdict.sentence.zh
    said = "Not measured, which was accepted: whether the evaluated texts are in the training text. "
    for verdict in (judged_by(RULES), first_champion(8.0, RULES)):
        assert verdict.promote and verdict.sentence.en.startswith(f"{said}Promoted: ")
        assert verdict.sentence.zh.startswith("未测量而予以接受：评测文本是否见于训练文本。晋升：")
        assert verdict.checks[0].passed is None and verdict.checks[0].finding.en == "not measured"
    assert judged_by(RULES, gain=-1.0).sentence.en.startswith("Not promoted: no better"), (
        "that rests on it not"
    )
    measured = judged_by(needed, contamination=0.0)
    assert measured.promote and measured.sentence.en.startswith("Promoted: ")


def test_every_rule_of_verse_can_be_limited_and_no_other():
    from yanmo.evaluate.verse.verse_rules import RULES as VERSE_RULES

    assert list(VERSE) == [rule.name for rule in VERSE_RULES]
    for name in VERSE:
        (limit,) = parse_limits(f"{name}>=0.5")
        verdict = judged_by(with_limits(f"{name}>=0.5"), guard_metrics={name: 0.4})
        assert limit.metric == name and "a metric is out of its limits" in verdict.sentence.en
    with pytest.raises(
        ValueError,
        match=r"no metric 'rhymes'; did you mean rhyme\?; there are distinct_2, .*, sentence_rhyme",
    ):
        parse_limits("rhymes>=0.5")


def test_one_lucky_poem_is_not_beyond_doubt():
    """A genre of one document has no spread of its own, and half of the mean."""
    lucky = {"诗": np.array([[60.0, 420.0, 480.0]]), **scores(0.0, documents={"词": 200})}
    verdict = judge(lucky, RULES)
    assert verdict.gain["bits"] > 0.4, "a whole bit in one poem"
    assert verdict.promote, "that much is more than any document of 词 differs"
    lucky["诗"] = np.array([[60.0, 456.0, 480.0]])
    verdict = judge(lucky, RULES)
    assert verdict.gain["bits"] > 0.1 and "may be luck" in verdict.sentence.en
    assert verdict.genres["诗"]["interval"] is None


def test_one_text_in_each_genre_says_nothing():
    verdict = judge(scores(0.5, documents={"诗": 1, "词": 1}), RULES)
    assert not verdict.promote and verdict.gain["interval"] is None
    assert "on one text in each genre" in verdict.sentence.en


def test_contaminated_figures_are_not_valid_whatever_they_are():
    rules = with_limits("", max_contamination=0.01)
    assert judged_by(rules, contamination=0.009).promote
    verdict = judged_by(rules, contamination=0.02, guard_metrics={"distinct_2": 0.0})
    assert verdict.outcome == "not valid" and not verdict.promote
    assert verdict.sentence.en.startswith("Not valid: 2.00 % of the evaluated texts")
    assert first_champion(8.0, rules, Evidence(contamination=0.02)).outcome == "not valid"


def test_a_model_that_was_taken_down_stays_down():
    verdict = judged_by(RULES, rolled_back="2026-11-20 03:00:00 UTC by li: rude")
    assert verdict.sentence.en == (
        "Not promoted: this model was taken down before: rolled back 2026-11-20 03:00:00 UTC by li: rude."
    )


GOOD = {"distinct_2": 0.9, "rhyme": 0.9}


def test_every_sentence_has_both_languages():
    rules = with_limits("distinct_2>=0.5,rhyme>=0.2", max_contamination=0.01)
    verdicts = [
        judged_by(rules, **evidence)
        for evidence in (
            {},
            {"guard_metrics": GOOD, "contamination": 0.0},
            {"guard_metrics": GOOD, "same_model": True},
            {"guard_metrics": GOOD, "contamination": 0.5},
            {"guard_metrics": {**GOOD, "distinct_2": 0.0}},
            {"guard_metrics": {**GOOD, "rhyme": 0.0}},
            {"guard_metrics": GOOD, "rolled_back": "then by her: why"},
        )
    ]
    fit = Evidence(guard_metrics=GOOD)
    verdicts += [
        judge(scores(gain, noise=noise), rules, fit) for gain, noise in ((-1, 0), (0.01, 0.0), (0.03, 3.0))
    ]
    verdicts.append(judge(scores({"诗": 0.9, "词": -0.2}, noise=0.0), rules, fit))
    verdicts.append(judge(scores(0.5, documents={"诗": 1}), rules, fit))
    verdicts.append(first_champion(8.0, rules, fit))
    assert len({v.sentence.en for v in verdicts}) == len(verdicts)
    for verdict in verdicts:
        for words in (verdict.sentence, *(w for c in verdict.checks for w in (c.rule, c.finding))):
            assert words.en and words.zh
        assert "。" in verdict.sentence.zh


@pytest.mark.parametrize(
    "wrong", ["distinct_2", "distinct_2=1", "nothing<=1", "rhyme>=x", "rhyme>=1e999", "rhyme>=-"]
)
def test_limits_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="--limits"):
        parse_limits(wrong)
