"""docs/how-to/settings.md: names of the guides get a hint, commands by hardware are ones that run."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest
from user_pages import page_called

from yanmo.balance.config import STAGE as BALANCE
from yanmo.common.errors import UsageError
from yanmo.curate.config import STAGE as CURATE
from yanmo.evaluate.config import STAGE as EVALUATE
from yanmo.options.command_line import load
from yanmo.options.fields import Options, names_of
from yanmo.options.nearest import GUIDE_NAMES, VALUES
from yanmo.tools.generate.options import GenerateOptions
from yanmo.train.config import STAGE as TRAIN
from yanmo.train.config import TrainConfig
from yanmo.train.memory.estimate import check, largest_that_fits

COMMANDS: list[type[Options]] = [
    *(stage.config for stage in (TRAIN, CURATE, BALANCE, EVALUATE)),
    GenerateOptions,
]
PAGES = ("settings.md", "settings.zh.md")


def hints(name: str) -> list[str]:
    """What commands say that are given an option of this name."""
    found = []
    for command in COMMANDS:
        for spelled in (name, name.replace("_", "-")):
            with pytest.raises(UsageError) as refused:
                load(command, [f"--{spelled}=1"], "yanmo x")
            found.append(str(refused.value))
    return found


@pytest.mark.parametrize("name", GUIDE_NAMES)
def test_a_name_of_the_guides_is_answered_with_ours(name: str) -> None:
    answers = [said for said in hints(name) if "docs/how-to/settings.md" in said]
    assert answers, hints(name)
    options = {option for command in COMMANDS for option in names_of(command)}
    for said in GUIDE_NAMES[name]:
        assert {o.replace("-", "_") for o in re.findall(r"--([a-z-]+)", said)} <= options, said


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--batch_size=4", "--micro-batch"),
        ("--num-workers=4", "--prefetch-batches"),
        ("--use_amp", "--precision"),
        ("--accumulation_steps=2", "--batch-rows"),
        ("--max_grad_norm=1", "--clip"),
        ("--d_model=512", "--width"),
        ("--learning_rate=1e-4", "--adam-learning-rate"),
        ("--precision=16-mixed", "fp16"),
        ("--precision=bf16-mixed", "bf16"),
        ("--precision=32", "fp32"),
        ("--schedule=cosine_with_restarts", "sgdr"),
        ("--stepss=3", "did you mean --steps"),
    ],
)
def test_a_training_says_what_was_meant(given: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"(here: .*|did you mean .*|){re.escape(meant)}"):
        load(TrainConfig, [given], "yanmo train")


@pytest.mark.parametrize("page", PAGES)
def test_the_page_maps_all_of_them(page: str) -> None:
    text = page_called(page).read_text(encoding="utf-8")
    firsts = re.findall(r"^\| (`[a-z0-9_]+`(?:, `[a-z0-9_]+`)*) \|", text, re.M)
    named = [name for cell in firsts for name in re.findall(r"`([a-z0-9_]+)`", cell)]
    assert sorted(named) == sorted(GUIDE_NAMES)
    for row in re.findall(r"^\| `[a-z0-9_]+`.*$", text, re.M):
        theirs, ours = re.findall(r"`([a-z0-9_]+)`", row.split("|")[1]), row.split("|")[2]
        asked = {o for name in theirs for said in GUIDE_NAMES[name] for o in re.findall(r"--[a-z-]+", said)}
        if "resume" not in theirs:
            assert set(re.findall(r"--[a-z-]+", ours)) & asked, row
    for value in ("16-mixed", "bf16-mixed", "32", "cosine_with_restarts"):
        assert f"`{value}`" in text and f"`{VALUES[value]}`" in text


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
