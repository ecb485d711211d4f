"""A full-width or curly character where another is meant is named, wherever an option is read."""

from __future__ import annotations

import pytest
from config_file import written

from yanmo.common.errors import UsageError
from yanmo.options.command_line import load
from yanmo.options.values import _TYPED, mistyped
from yanmo.train.config import TrainConfig


@pytest.mark.parametrize(
    ("given", "found", "meant"),
    [
        ("--steps=２０", "２ (U+FF12)", "'2'"),
        ("--steps=“20”", "“ (U+201C)", "'\"'"),
        ("--steps＝20", "＝ (U+FF1D)", "'='"),
        ("—steps=20", "— (U+2014)", "'-'"),
        ("--precision=ｂf16", "ｂ (U+FF42)", "'b'"),
        ("--options=train.steps＝20", "＝ (U+FF1D)", "'='"),
        ("--options=train.steps=２0", "２ (U+FF12)", "'2'"),
        ("--options=train．steps=20", "． (U+FF0E)", "'.'"),
        ("--options=train.ｓteps=20", "ｓ (U+FF53)", "'s'"),
        ("steps: ２0", "２ (U+FF12)", "'2'"),
    ],
)
def test_the_character_is_named_with_what_is_meant(given: str, found: str, meant: str) -> None:
    argument = f"--config={written(given)}" if given.startswith("steps") else given
    with pytest.raises(UsageError) as refused:
        load(TrainConfig, [argument], "yanmo train")
    assert f"it holds {found} for {meant}" in str(refused.value)


@pytest.mark.parametrize("character", sorted(_TYPED))
def test_each_of_them_is_found_and_none_is_its_own_correction(character: str) -> None:
    assert f"U+{ord(character):04X}" in mistyped(f"train.steps{character}20")
    assert not mistyped(_TYPED[character])
