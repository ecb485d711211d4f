"""`--set` and `--grid`: names of options and their values, and the settings that they stand for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import yaml

from yanmo.common.errors import UsageError
from yanmo.options.fields import names_of
from yanmo.options.nearest import did_you_mean
from yanmo.options.shared import StageOptions
from yanmo.options.values import brief
from yanmo.options.yaml_file import plain_yaml
from yanmo.stage.declaration import Stage
from yanmo_pipelines.run_form import form_fields
from yanmo_pipelines.stages import BALANCE, CURATE, EVALUATE, TOKENIZE, TRAIN
from yanmo_pipelines.sweep.options import MOST_RUNS

CHAIN: tuple[Stage, ...] = (CURATE, BALANCE, TOKENIZE, TRAIN, EVALUATE)
"""The stages of a run of a sweep, each after the one that it depends on."""


@dataclass(frozen=True, order=True)
class Name:
    """An option of a stage."""

    stage: str
    option: str

    def __str__(self) -> str:
        return f"{self.stage}.{self.option}"


Values = Mapping[Name, str]
"""Option -> its value as a flag takes it."""
SEED = Name(TRAIN.name, "seed")


def read_name(text: str, where: str) -> Name:
    """The option that `train.steps`, or its name on the run form, stands for.

    Args:
        where: `--set` or `--grid`, for messages.

    Raises:
        UsageError: there is none, or the sweep sets it itself.
    """
    fields = {f.name: Name(f.stage, f.option) for stage in CHAIN for f in form_fields(stage)}
    stage, dot, option = text.partition(".")
    name = Name(stage, option.replace("-", "_")) if dot else fields.get(text, Name("", text))
    known = {Name(s.name, o) for s in CHAIN for o in names_of(s.config)}
    if name not in known:
        hint = did_you_mean(text, [*map(str, known), *fields])
        stages = ", ".join(s.name for s in CHAIN)
        raise UsageError(
            f"{where} {brief(text)}: expected STAGE.OPTION of {stages}{hint}; see yanmo STAGE --help"
        )
    wired = {Name(s.name, o) for s in CHAIN for o in names_of(s.config, kind="input")} - STARTS
    if name.option in names_of(StageOptions) or name in wired:
        raise UsageError(f"{where} {name}: the sweep sets it itself; leave it out")
    return name


STARTS = {Name(TRAIN.name, "model"), Name(TOKENIZE.name, "tokenizer")}
"""Inputs that no stage of the chain makes: a model to start from, and its tokenizer."""


def read_settings(texts: Iterable[str]) -> dict[Name, str]:
    """What `--set NAME=VALUE` gives to all runs.

    Raises:
        UsageError: no such option, no value, or an option given twice.
    """
    return dict(_read(texts, "--set"))


def read_grid(texts: Iterable[str]) -> dict[Name, tuple[str, ...]]:
    """The values that `--grid NAME=VALUE,VALUE` gives one after another.

    A list in square brackets holds values with commas in them, as YAML does: `["a,b", c]`.

    Raises:
        UsageError: no such option, fewer than two values, or a value given twice.
    """
    return {name: _values(name, text) for name, text in _read(texts, "--grid")}


def _read(texts: Iterable[str], where: str) -> list[tuple[Name, str]]:
    found: dict[Name, str] = {}
    for text in texts:
        left, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{where} {brief(text)}: expected NAME=VALUE")
        name = read_name(left.strip(), where)
        if name in found:
            raise UsageError(f"{where} {name} is given twice")
        found[name] = value
    return list(found.items())


def _values(name: Name, text: str) -> tuple[str, ...]:
    values = _listed(name, text) if text.lstrip().startswith("[") else [v.strip() for v in text.split(",")]
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise UsageError(f"--grid {name}: {brief(twice[0])} is given twice")
    if len(values) < 2:
        raise UsageError(f"--grid {name}={brief(text)}: expected two values or more; --set gives one to all")
    if not all(values):
        raise UsageError(f"--grid {name}={brief(text)}: a value is empty; expected VALUE,VALUE")
    return tuple(values)


def _listed(name: Name, text: str) -> list[str]:
    expected = f'--grid {name}={brief(text)}: expected a list, such as ["a,b", c]'
    try:
        found = plain_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(expected) from error
    if not isinstance(found, list) or not all(isinstance(value, str) for value in found):
        raise UsageError(expected)
    return found


def expanded(grid: Mapping[Name, Sequence[str]], num_seeds: int) -> list[dict[Name, str]]:
    """Every combination of the grid's values, the last option changing first.

    Raises:
        UsageError: more runs than a sweep takes.
    """
    number = math.prod(map(len, grid.values())) * num_seeds
    if number > MOST_RUNS:
        sizes = " x ".join(str(len(values)) for values in grid.values()) or "1"
        raise UsageError(
            f"--grid: {sizes} settings x {num_seeds} seeds are {number} trainings, at most {MOST_RUNS}: "
            "leave some out"
        )
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
