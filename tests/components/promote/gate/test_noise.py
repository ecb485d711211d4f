"""The seed's noise and the margin that it makes."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common.errors import DataError
from yanmo.formats.seed_noise import NOISE, PART, SeedNoise, Twin, spread_of
from yanmo.promote.config import PromoteConfig
from yanmo.promote.gate import findings
from yanmo.promote.gate.noise import MEAN_SHARE, RUN, Noise, chance_of_change, margin, quantile, told_apart
from yanmo.promote.gate.rules import asked_of, judge
from yanmo.promote.gate.verdict import Evidence, Rules
from yanmo.promote.work import rules_of
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.opening import open_store

RULES = Rules(min_gain=0.003, max_genre_loss=9.0, level=0.95, draws=2000, seed=0, assumed_noise=0.0025)


def months(df, sigma, is_warm, count, nights=30, seed=0, likeness=0.0):
    """Measured sd, and the gain that decides a month without progress, of `count` months.

    Args:
        likeness: correlation of one night's luck with the night before.
    """
    draw = np.random.default_rng(seed)
    measured = sigma * (np.sqrt(draw.chisquare(df, count) / df) if math.isfinite(df) else np.ones(count))
    champion = np.zeros(count) if is_warm else draw.normal(0, sigma, count)
    luck = draw.normal(0, sigma, (count, nights))
    for night in range(1, nights):
        luck[:, night] = likeness * luck[:, night - 1] + math.sqrt(1 - likeness**2) * luck[:, night]
    gains = champion[:, None] - luck
    best = gains.max(1)
    if nights >= RUN:
        means = np.lib.stride_tricks.sliding_window_view(gains, RUN, axis=1).mean(2)
        best = np.maximum(best, means.max(1) / MEAN_SHARE)
    return measured, best


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize(("df", "sigma"), [(3, 0.0004), (7, 0.0017), (15, 0.01), (math.inf, 0.0025)])
def test_a_month_without_progress_changes_the_champion_as_often_as_was_asked_for(df, sigma, is_warm):
    """Or a little less: windows of three nights overlap, and count as if they did not."""
    for error in (0.05, 0.2):
        measured, gain = months(df, sigma, is_warm, 100_000)
        found = np.mean(gain > quantile(error, 30, df, is_warm) * measured)
        assert 0.85 * error < found < error + 4 * math.sqrt(error * (1 - error) / 100_000)


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("df", [7, 15, math.inf])
@pytest.mark.parametrize("likeness", [0.3, 0.6, 0.85, 0.99])
def test_nights_that_share_their_luck_do_not_break_the_bound(df, likeness, is_warm):
    """Models of one seed on a text that grew are alike (benchmarks/NOTES.md): three are no witnesses."""
    measured, gain = months(df, 0.002, is_warm, 40_000, likeness=likeness)
    found = np.mean(gain > quantile(0.05, 30, df, is_warm) * measured)
    assert found < 0.056, "0.05, its error of 0.001, and 0.003 where sigma is known and nights go on"


def test_a_gain_that_is_told_apart_is_promoted_within_three_nights_in_nine_of_ten_cases():
    draw = np.random.default_rng(3)
    for sd, is_warm in itertools.product((0.001, 0.002), (False, True)):
        noise = Noise(sd=sd, df=math.inf, is_warm=is_warm)
        single = margin(noise, 0.05, 30)
        gain = told_apart(noise, MEAN_SHARE * single)
        champion = 0.0 if is_warm else draw.normal(0, sd, (100_000, 1))
        gains = gain + champion - draw.normal(0, sd, (100_000, 3))
        found = np.mean((gains > single).any(1) | (gains.mean(1) > MEAN_SHARE * single))
        assert 0.9 <= found < 0.99


@pytest.mark.long
@settings(max_examples=8, deadline=None)  # 0.5 s each
@given(st.integers(1, 60), st.integers(1, 200), st.floats(0.0001, 0.5), st.booleans())
def test_more_twins_fewer_nights_and_a_larger_error_ask_for_less(df, nights, error, is_warm):
    q = quantile(error, nights, df, is_warm)
    assert chance_of_change(q, nights, df, is_warm) <= error + 1e-6
    assert quantile(error, nights, df + 1, is_warm) <= q + 1e-6
    assert quantile(error, nights + 1, df, is_warm) >= q - 1e-6
    assert quantile(min(2 * error, 0.5), nights, df, is_warm) <= q + 1e-6
    assert quantile(error, nights, math.inf, is_warm) <= q + 1e-6
    if error <= 0.1:  # half of all single draws are above 0: with large errors the signs turn
        assert quantile(error, nights, df, True) <= quantile(error, nights, df, False) + 1e-6


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(1, 20), min_size=1, max_size=9), max_size=5), st.floats(0.1, 9))
def test_the_spread_is_a_share_and_of_seeds_alone(groups, factor):
    """Twins of another text, or of a model in other bits, say as much of the seed."""
    sd, df = spread_of(groups)
    assert df == sum(len(group) - 1 for group in groups)
    assert math.isnan(sd) if df == 0 else sd >= 0
    scaled = spread_of([[factor * value for value in group] for group in groups])
    assert scaled[1] == df and (df == 0 or scaled[0] == pytest.approx(sd, abs=1e-9))
    if len(groups) == 1 and df:
        assert sd == pytest.approx(np.std(groups[0], ddof=1) / np.mean(groups[0]), abs=1e-12)


def two(gain, documents=200):
    """Paired scores of one genre: 8 bits per character, and a challenger that needs this share fewer."""
    draw = np.random.default_rng(1)
    characters = draw.integers(50, 200, documents).astype(float)
    champion = characters * draw.normal(8, 0.5, documents)
    return {"诗": np.stack([characters, champion * (1 - gain), champion], 1)}


def test_the_margin_grows_with_the_noise_and_is_never_below_the_least_gain():
    quiet, loud = (Noise(sd=sd, df=15, twins=16, source="seed_noise/ab") for sd in (0.0001, 0.002))
    assert judge(two(0.004), RULES, Evidence(noise=quiet, contamination=0.0)).promote
    verdict = judge(two(0.004), RULES, Evidence(noise=loud, contamination=0.0))
    assert not verdict.promote
    assert (
        verdict.noise["margin"]
        == pytest.approx(margin(loud, 0.05, 30), abs=1e-6)
        == pytest.approx(0.00892, abs=1e-5)
    )
    assert "below the 0.892 % asked for (4.5 times the seed's noise of 0.2 %, measured by 16 twins" in str(
        verdict.sentence
    )
    assert "种子噪声 0.2 % 的 4.5 倍，由 16 次短训测得" in verdict.sentence.zh
    assert judge(two(0.009), RULES, Evidence(noise=loud, contamination=0.0)).promote
    assert (
        judge(two(0.009), RULES, Evidence(noise=loud, contamination=0.0)).noise["source"] == "seed_noise/ab"
    )


def test_twins_that_scatter_less_than_whole_trainings_do_are_not_believed():
    """Recipe b of benchmarks/NOTES.md: twins of a quarter 0.076 %, whole trainings 0.180 % (12 seeds)."""
    few = Noise(sd=0.00076, df=15, twins=16)
    naive = judge(two(0.005), RULES, Evidence(noise=few, contamination=0.0))
    assert naive.promote, "what would change the champion in half of the months"
    rules = Rules(**{**vars(RULES), "least_noise": 0.0018})
    verdict = judge(two(0.005), rules, Evidence(noise=few, contamination=0.0))
    assert not verdict.promote and "0.18 %, the least that is used; 16 twins measured 0.076 %" in str(
        verdict.sentence
    )
    loud = Noise(sd=0.003, df=15, twins=16)
    assert judge(two(0.01), rules, Evidence(noise=loud)).noise == {
        **judge(two(0.01), RULES, Evidence(noise=loud)).noise,
        "least_sd": 0.0018,
    }


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.floats(0.0001, 0.01), st.integers(2, 32), st.booleans())
def test_the_sentence_names_the_noise_that_made_the_margin(sd, twins, is_warm):
    """Few twins are known so badly that little noise makes the margin, above the least that is used."""
    noise = Noise(sd=sd, df=twins - 1, twins=twins, is_warm=is_warm)
    rules = Rules(**{**vars(RULES), "least_noise": 0.002})
    said = findings.least(asked_of(rules, Evidence(noise=noise)))
    few, many = quantile(0.05, 30, twins - 1, is_warm), quantile(0.05, 30, math.inf, is_warm)
    by_twins = few * sd >= many * 0.002
    if max(few * sd, many * 0.002) <= rules.min_gain:
        assert "least gain asked for" in said.en
        return
    times, named = (few, sd) if by_twins else (many, 0.002)
    found = re.search(r"([\d.]+) times the seed's noise of ([\d.e-]+ %), ", said.en)
    assert found[2] == findings.percent(named) and float(found[1]) == pytest.approx(times, abs=0.06)
    assert f"种子噪声 {found[2]} 的 {found[1]} 倍" in said.zh
    assert ("the least that is used" in said.en) == ("所信之最小值" in said.zh) == (not by_twins)


def test_a_night_that_goes_on_from_the_champion_needs_less():
    cold, warm = (Noise(sd=0.002, df=15, is_warm=w, twins=16) for w in (False, True))
    assert not judge(two(0.0075), RULES, Evidence(noise=cold)).promote
    assert judge(two(0.0075), RULES, Evidence(noise=warm)).promote
    for from_champion in (False, True):  # and where nobody measured: 0.995 % or 0.733 %
        verdict = judge(two(0.0075), RULES, Evidence(contamination=0.0, from_champion=from_champion))
        assert verdict.promote == from_champion


@pytest.mark.parametrize("gain", [0.004, 0.02])
def test_what_rests_on_an_assumed_noise_says_so_first(gain):
    verdict = judge(two(gain), RULES, Evidence(contamination=0.0))
    assert verdict.sentence.en.startswith("The seed's noise was not measured, 0.25 % is assumed. ")
    assert verdict.sentence.zh.startswith("种子噪声未测量，假定为 0.25 %。")
    assert verdict.promote == (gain > 3.98 * 0.0025)
    measured = judge(two(gain), RULES, Evidence(noise=Noise(sd=0.0025, df=15, twins=16)))
    assert "not measured, 0.25" not in measured.sentence.en


def test_a_refusal_for_another_reason_does_not_speak_of_noise():
    assert "noise" not in judge(two(-0.01), RULES).sentence.en
    assert "noise" not in judge(two(0.1), RULES, Evidence(rolled_back="yesterday")).sentence.en


def test_twins_are_read_as_they_were_written_and_another_version_is_refused(tmp_path):
    twins = tuple(Twin(seed=i, text="ab" * 32, bits_per_character=9.0 + 0.01 * i) for i in range(4))
    noise = SeedNoise(share=0.25, twins=(*twins, Twin(seed=9, text="cd" * 32, bits_per_character=8.0)))

    store = open_store(str(tmp_path))

    def committed(data):
        def build(attempt):
            attempt.write("noise.json", data)
            return Result(counts={})

        recipe = Recipe(stage=PART, revision=1, semantic={"text": data.decode()}, inputs={})
        return commit_once(store, recipe, build)

    data = NOISE.to_json(noise)
    assert SeedNoise.of(committed(data)) == noise
    assert noise.spread == (pytest.approx(np.std([9.0, 9.01, 9.02, 9.03], ddof=1) / 9.015), 3)
    for other in (1, 9):
        with pytest.raises(DataError, match="of another version of Yanmo"):
            SeedNoise.of(committed(data.replace(b"seed_noise/2", b"seed_noise/%d" % other)))


@pytest.mark.long
def test_what_the_seed_alone_does_to_a_real_recipe_is_not_promoted():
    """Twelve whole trainings of recipe b (benchmarks/NOTES.md) that differ by their seed."""
    table = pq.read_table(Path(__file__).with_name("seeds-of-recipe-b.parquet"))
    genres = np.array(table["genre"].to_pylist())
    columns = [table[n].to_numpy().astype(float) for n in table.schema.names if n.startswith("seed ")]
    characters = table["characters"].to_numpy().astype(float)

    def paired(challenger, champion):
        values = np.stack([characters, challenger, champion], 1)
        return {genre: values[genres == genre] for genre in dict.fromkeys(genres.tolist())}

    defaults = rules_of(PromoteConfig(max_genre_loss=9.0, limits="", draws=2000))
    before = Rules(**{**vars(defaults), "assumed_noise": 0.0, "least_noise": 0.0})
    lucky = [paired(a, b) for a, b in itertools.permutations(columns, 2)]
    lucky = [p for p in lucky if judge(p, before, Evidence(contamination=0.0)).promote]
    assert len(lucky) >= 13, "of 132 ordered pairs, a tenth or more"
    quarter = Noise(sd=0.00076, df=7, twins=8)  # what the twins of a quarter said
    for noise in (quarter, Noise(sd=0.00202, df=7, twins=8), None):
        evidence = Evidence(contamination=0.0, noise=noise)
        assert not any(judge(p, defaults, evidence).promote for p in lucky)


def test_three_nights_are_promoted_by_their_mean_and_say_so():
    loud = Noise(sd=0.002, df=15, twins=16)  # asks for 0.892 % of one night and 0.728 % of three
    told = Evidence(contamination=0.0, noise=loud, before=(0.0075, 0.0072))
    verdict = judge(two(0.0074), RULES, told)
    assert verdict.promote and verdict.noise["mean"] == pytest.approx(0.00737, abs=1e-5)
    assert "the mean gain of the last three nights of this recipe is 0.74 %, asked for 0.728 %" in str(
        verdict.sentence
    )
    assert "此配方最近三夜平均提升 0.74 %，要求 0.728 %" in verdict.sentence.zh
    assert "mean of the last three" not in str(judge(two(0.02), RULES, told).sentence)
    for before in ((), (0.0074,), (0.0069, 0.007), (0.02, 0.003, 0.007)):
        verdict = judge(two(0.0074), RULES, Evidence(contamination=0.0, noise=loud, before=before))
        assert not verdict.promote, "too few nights, or nights that gain too little; older ones do not count"
        assert "a true gain under 1.02 % may take more than three nights to be told from luck" in str(verdict)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-0.02, 0.02), max_size=5), st.floats(-0.02, 0.02))
def test_nights_before_carry_nobody_who_gains_too_little_alone(before, gain):
    with_them = judge(two(gain), RULES, Evidence(contamination=0.0, before=tuple(before)))
    alone = judge(two(gain), RULES, Evidence(contamination=0.0))
    assert with_them.promote or not alone.promote, "nights before never speak against a night"
    if with_them.gain["share"] < RULES.min_gain:
        assert not with_them.promote
