"""docs/how-to/settings.md: names of other guides lead to options, commands by hardware are ones that run."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest
from user_pages import page_called

from yanmo.balance.config import STAGE as BALANCE
from yanmo.curate.config import STAGE as CURATE
from yanmo.evaluate.config import STAGE as EVALUATE
from yanmo.options.command_line import load
from yanmo.options.fields import Options, names_of
from yanmo.tools.generate.command import GenerateOptions
from yanmo.train.config import STAGE as TRAIN
from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import check, largest_that_fits

COMMANDS: list[type[Options]] = [
    *(stage.config for stage in (TRAIN, CURATE, BALANCE, EVALUATE)),
    GenerateOptions,
]
PAGES = ("settings.md", "settings.zh.md")


@pytest.mark.parametrize("page", PAGES)
def test_names_of_other_guides_are_none_of_ours_and_lead_to_options_that_there_are(page: str) -> None:
    text = page_called(page).read_text(encoding="utf-8")
    ours = {option for command in COMMANDS for option in names_of(command)}
    rows = re.findall(r"^\| ((?:`[a-z0-9_]+`(?:, )?)+) \| (.*) \|$", text, re.M)
    assert len(rows) > 20
    for theirs, here in rows:
        assert not set(re.findall(r"`([a-z0-9_]+)`", theirs)) & ours, theirs
        named = {option.replace("-", "_") for option in re.findall(r"--([a-z][a-z0-9-]*)", here)}
        assert named <= ours and (named or "resume" in theirs), here


def commands(page: str) -> list[str]:
    text = page_called(page).read_text(encoding="utf-8")
    return re.findall(r"\| `(yanmo train [^`]+)` \|", text)


def test_both_pages_have_the_same_commands_for_all_kinds_of_hardware() -> None:
    assert commands(PAGES[0]) == commands(PAGES[1])
    assert len(commands(PAGES[0])) == 6


@pytest.mark.parametrize("command", commands(PAGES[0]))
def test_each_command_is_whole_and_what_it_trains_fits_by_the_estimate(command: str) -> None:
    options = load(TrainConfig, shlex.split(command)[2:], "yanmo train")
    assert options.epochs and options.warmup_share
    if options.device == "cuda":
        rows = largest_that_fits(options, 8192, "cuda")
        fitted = dataclasses.replace(options, micro_batch=rows)
        check(fitted, 8192, "cuda")  # raises where it does not fit
        assert fitted.rank_rows % rows == 0
