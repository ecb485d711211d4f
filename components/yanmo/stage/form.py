"""The run form, read by the first task alone: the others are handed what it says.

A wrong value so ends the run before a stage has worked, and a field that is empty has its default: KFP's
"Clone run" empties every field that was not filled in.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from yanmo.common.errors import UsageError
from yanmo.options.one_line import read_line
from yanmo.options.values import brief
from yanmo.options.whole_run import WholeRun, read_run
from yanmo.stage.declaration import Stage


def read_form(first: Stage, stages: Sequence[str], form: Sequence[str], defaults: str, line: str) -> WholeRun:
    """Return what the form of a run says together with the line of other options.

    Args:
        first: the stage that reads it, whose own options may be in it as well.
        stages: modules that declare the others.
        form: its fields, STAGE.OPTION=VALUE each; an empty one has its default.
        defaults: what an empty field stands for, and what the pipeline sets besides, in one line.

    Raises:
        UsageError: a value that an option cannot have; begins with the field's name.
    """
    configs = {stage.name: stage.config for stage in (first, *declared(stages))}
    return read_run(configs, _by_stage(form), read_line(defaults), line)


def _by_stage(form: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for each in form:
        name, equals, value = each.partition("=")
        stage, dot, option = name.partition(".")
        if not (equals and dot):
            raise UsageError(f"--form {brief(each)}: expected STAGE.OPTION=VALUE")
        found.setdefault(stage, {})[option] = value
    return found


def declared(modules: Sequence[str]) -> list[Stage]:
    """Return the stages that modules declare: no stage knows another.

    Such a `config.py` needs the standard library alone.

    Raises:
        UsageError: a module that declares none.
    """
    return [_declared(module) for module in modules]


def _declared(module: str) -> Stage:
    try:
        found = importlib.import_module(module).STAGE
    except (ImportError, AttributeError, TypeError, ValueError):
        found = None
    if not isinstance(found, Stage):
        raise UsageError(
            f"--stages {brief(module)}: expected the module of a STAGE, such as yanmo.train.config"
        )
    return found
