"""What enters the keys of stored outputs, compared with what commit 0a5ce65 put there.

`recipes.json` was written by that commit (but for options that have gone since; --twin-share, a half since
6ee4ea1; the least share of Han characters that modern-1 stands for; steps, frequent tokens and beta2 of size
tiny; ranks, threads and backend of one device): for each stage the recipe of its defaults, and what every
option by itself and some together changed in it. A name or value that differs makes a store of before
worthless: the stage's revision must then say that its output is another one.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path

import pytest

from yanmo.common.errors import UsageError
from yanmo.curate.config import MAP, CurateOptions, of_phases
from yanmo.curate.split.pinned_set import CHOSEN
from yanmo.curate.text.record_rules import record_rules
from yanmo.options.command_line import load
from yanmo.options.fields import by_kind, names_of, opt, values_of
from yanmo.train.supervision.benchmark import short
from yanmo.train.supervision.machine_check import LEFT
from yanmo.train.supervision.seed_twins import twin_of

RECIPES = json.loads(Path(__file__).with_name("recipes.json").read_text(encoding="utf-8"))


def config_of(stage: str, argv: list[str]):
    return load(importlib.import_module(f"yanmo.{stage}.config").STAGE.config, argv, f"yanmo {stage}")


@pytest.mark.parametrize("stage", RECIPES)
@pytest.mark.parametrize("kind", ["semantic", "execution", "environment"])
def test_the_defaults_of_a_stage_make_the_recipe_that_they_made(stage: str, kind: str) -> None:
    made = by_kind(config_of(stage, RECIPES[stage]["base"]), kind)
    assert json.loads(json.dumps(made, default=str)) == RECIPES[stage][kind], (
        "a new semantic option has later=True; any other new one is added to recipes.json by hand, and "
        "another default of a semantic one makes other keys"
    )


@pytest.mark.parametrize("stage", RECIPES)
def test_each_option_changes_in_the_recipe_what_it_changed(stage: str) -> None:
    before = dataclasses.asdict(config_of(stage, RECIPES[stage]["base"]))
    for argv, expected in RECIPES[stage]["cases"]:
        after = dataclasses.asdict(config_of(stage, argv))
        assert {n: v for n, v in after.items() if v != before[n]} == expected, argv
        types = {n: type(v) for n, v in after.items()}
        assert types == {n: type(v) for n, v in before.items()}, argv


def other_values(cls: type, name: str) -> list[object]:
    """Values of an option that are not its default."""
    field, values = cls.__dataclass_fields__[name], values_of(cls)[name]
    tried = [
        *values.choices,
        not field.default,
        1,
        2,
        3,
        64,
        0.25,
        0.9,
        0,
        "x",
        "shi=modern",
        "no-variants",
        "none",
    ]
    tried += ["lacuna=0.5", "phone", "a/=MIT"]
    return [v for v in tried if type(v) is values.type and v != field.default and values.fits(v)]


@pytest.mark.parametrize("part", RECIPES["curate"]["parts"])
def test_the_parts_of_curate_have_the_options_in_their_keys_that_they_had(part: str) -> None:
    phases = {"curate_map": MAP, "evaluation_set": CHOSEN}[part]
    semantic, _ = of_phases(CurateOptions(sources="x"), phases)
    assert sorted(semantic) == RECIPES["curate"]["parts"][part]
    assert all(semantic[name] == RECIPES["curate"]["semantic"][name] for name in semantic)


def test_no_option_that_changes_what_map_does_is_left_out_of_its_key() -> None:
    """`curate_map` is made from `record_rules` and a file; a forgotten option would take up stale text."""
    plain = CurateOptions(sources="x")
    key, of_the_key = of_phases(plain, MAP)
    made, changed = record_rules(of_the_key), set()
    for name in names_of(CurateOptions, kind="semantic"):
        for value in other_values(CurateOptions, name):
            try:
                other = dataclasses.replace(plain, **{name: value})
                after = record_rules(of_phases(other, MAP)[1])
            except UsageError:
                continue
            if after != made:
                changed.add(name)
                assert of_phases(other, MAP)[0] != key, name
    assert changed == set(key)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Forgotten(CurateOptions):
    """With one more option, whose author says nothing of phases."""

    one_more: int = opt(0, "a new one")
    late: int = opt(0, "a new one of a late phase", phase="train")


def test_an_option_that_says_no_phase_is_in_every_key_and_no_phase_reads_a_later_ones() -> None:
    options = _Forgotten(sources="x", one_more=7, late=7)
    for phases in (MAP, CHOSEN):
        semantic, of_the_key = of_phases(options, phases)
        assert semantic["one_more"] == of_the_key.one_more == 7
        assert "late" not in semantic
        with pytest.raises(AttributeError, match="option late is not in the key"):
            _ = of_the_key.late
    known = {"", "checks", "clusters", "confirm", "split", "files", "train"}
    assert {f.metadata["phase"] for f in dataclasses.fields(CurateOptions)} == known


def test_trials_twins_and_what_the_machine_decides_follow_from_declarations_as_from_the_lists() -> None:
    asked = config_of("train", ["--profile=3", "--steps=1000", "--monitor=full", "--twin-share=0.25"])
    assert by_kind(twin_of(asked, 1), "semantic", "execution") == RECIPES["train"]["twin"]
    assert short() == RECIPES["train"]["short"]
    assert sorted(LEFT) == sorted(RECIPES["train"]["left"])
