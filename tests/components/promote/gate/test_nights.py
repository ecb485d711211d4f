"""Three nights of one recipe against one champion: which count, and that a night is judged the same."""

import json

import pytest
from tiny_store import commit

from yanmo.formats.seed_noise import FILE, NOISE, PART, SeedNoise, Twin

CLOSE = 7.932
"""Bits of a night that gains 0.85 % of 8: below the 0.995 % of one night, above the 0.813 % of three."""


def nights(stage):
    return [n["share"] for n in stage.verdict()["nights"]]


def champion(stage, bits=8.0):
    stage.evaluate(stage.model(1), bits)
    assert stage.promote() == 0
    return stage.model(1)


def night(stage, seed, bits=CLOSE, *arguments, text=None, **more):
    """The verdict on the challenger of one night, trained with a seed of its own."""
    stage.evaluate(stage.model(seed, text=text), bits, **more)
    assert stage.promote(*arguments) == 0
    return stage.verdict()


def test_the_third_night_that_gains_alike_is_promoted(stage):
    champion(stage)
    assert [night(stage, seed)["promote"] for seed in (2, 3, 4)] == [False, False, True]
    assert nights(stage) == pytest.approx([0.0085] * 3, abs=1e-5)
    assert (
        "last three nights of this recipe is 0.85 %, asked for 0.813 %" in stage.verdict()["sentence"]["en"]
    )
    assert "mean of three nights" in stage.written("report.html")
    night(stage, 5, 7.9)
    assert len(nights(stage)) == 1, "another champion: its nights begin"


def test_a_night_judged_again_is_found_and_reads_the_same_nights(stage, caplog):
    champion(stage)
    for seed in (2, 3, 4):
        first = night(stage, seed)
        before = stage.pointer("promote").key
        caplog.clear()
        assert stage.promote() == 0 and stage.pointer("promote").key == before
        assert "is committed already" in caplog.text
        assert stage.promote("--force") == 0 and stage.verdict() == first
    night(stage, 5, 7.99)
    stage.evaluate(stage.model(4), CLOSE)  # the champion by now
    assert stage.promote() == 0 and stage.pointer("promote").key == before


def test_an_older_night_judged_again_does_not_count_what_came_after(stage):
    champion(stage)
    night(stage, 2)
    night(stage, 3, 8.0)
    key = stage.pointer("promote").key
    night(stage, 4, 7.99)
    night(stage, 3, 8.0)
    assert stage.pointer("promote").key == key and len(nights(stage)) == 2


def by_options(stage, seed, **more):
    """A model of that seed whose training had other options, or parts."""
    model, options = stage.model(seed), {"seed": seed, "steps": 7}
    files = {n: model.path(n).read_text() for n in ("model.safetensors", "config.json", "metrics.jsonl")}
    inputs = {"token_cache": model.input("token_cache"), "model": None}
    return commit(stage.store, "train", files, inputs=inputs, options=options, channel="dev", **more)


@pytest.mark.parametrize("what", ["recipe", "conditions", "contaminated", "dry run", "base"])
def test_nights_that_cannot_be_compared_do_not_count(stage, what):
    champion(stage)
    night(stage, 2)
    if what == "dry run":
        stage.evaluate(stage.model(3), CLOSE)
        assert stage.promote("--dry-run") == 0
    elif what == "contaminated":
        assert night(stage, 3, contamination=0.5)["outcome"] == "not valid"
        assert len(nights(stage)) == 1
    elif what == "base":
        stage.evaluate(stage.model(3, base=stage.model(9)), CLOSE)
        assert stage.promote() == 0
    elif what == "conditions":
        stage.evaluate(stage.model(1), 8.0, split="valid", pointer="champion_evaluation")
        night(stage, 3, split="valid")
    else:
        stage.evaluate(by_options(stage, 3), CLOSE)
        assert stage.promote() == 0
    if what == "conditions":
        assert not night(stage, 4, split="valid")["promote"]
    else:
        assert not night(stage, 4)["promote"]


def test_text_that_grows_from_night_to_night_is_the_same_recipe(stage):
    champion(stage)
    texts = [stage.text(f"text {number}") for number in range(3)]
    assert [night(stage, 2 + i, text=t)["promote"] for i, t in enumerate(texts)] == [False, False, True]


def test_a_verdict_of_an_older_version_or_a_damaged_one_has_no_nights(stage, caplog):
    champion(stage)
    night(stage, 2)
    night(stage, 3)
    (path,) = [
        p
        for p in (stage.folder / "cas/promote").glob("*/*/verdict.json")
        if len(json.loads(p.read_text())["nights"]) == 2
    ]
    path.chmod(0o644)
    path.write_text("{}")
    assert not night(stage, 4)["promote"] and len(nights(stage)) == 1
    assert "the nights before do not count" in caplog.text


def test_the_seed_s_noise_of_the_recipe_decides_what_three_nights_need(stage):
    champion(stage)
    twins = tuple(
        Twin(seed=i, text="ab" * 32, bits_per_character=9.0 * (1 + 0.002 * (-1) ** i)) for i in range(12)
    )
    part = commit(stage.store, PART, {FILE: NOISE.to_json(SeedNoise(share=0.5, twins=twins))})
    outcomes = []
    for seed in (2, 3, 4):
        stage.evaluate(
            by_options(stage, seed, references={PART: part}), 7.936
        )  # 0.8 %: enough with the 0.209 % of these twins
        assert stage.promote() == 0
        outcomes.append(stage.verdict()["promote"])
    assert outcomes == [False, False, True]
    noise = stage.verdict()["noise"]
    assert noise["sd"] == pytest.approx(0.00209, abs=1e-5) and noise["twins"] == 12
    assert noise["margin_of_mean"] == pytest.approx(0.816497 * noise["margin"], abs=1e-5)
    assert noise["margin"] > 0.008 > noise["margin_of_mean"]
