"""What enters the keys of stored outputs, compared with what commit 0a5ce65 put there.

`recipes.json` was written by that commit: for each stage the recipe of its defaults, and what every option by
itself and some together changed in it. A name or value that differs here makes a store of before worthless:
`yanmo store migrate` must then carry it over, or the stage's revision says that its output is another one.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path

import pytest

from yanmo.common.options import by_kind, load

RECIPES = json.loads(Path(__file__).with_name("recipes.json").read_text(encoding="utf-8"))


def config_of(stage: str, argv: list[str]):
    return load(importlib.import_module(f"yanmo.{stage}.config").STAGE.config, argv, f"yanmo {stage}")


@pytest.mark.parametrize("stage", RECIPES)
@pytest.mark.parametrize("kind", ["semantic", "execution", "environment"])
def test_the_defaults_of_a_stage_make_the_recipe_that_they_made(stage: str, kind: str) -> None:
    assert by_kind(config_of(stage, RECIPES[stage]["base"]), kind) == RECIPES[stage][kind]


@pytest.mark.parametrize("stage", RECIPES)
def test_each_option_changes_in_the_recipe_what_it_changed(stage: str) -> None:
    before = dataclasses.asdict(config_of(stage, RECIPES[stage]["base"]))
    for argv, expected in RECIPES[stage]["cases"]:
        after = dataclasses.asdict(config_of(stage, argv))
        assert {n: v for n, v in after.items() if v != before[n]} == expected, argv
        types = {n: type(v) for n, v in after.items()}
        assert types == {n: type(v) for n, v in before.items()}, argv
