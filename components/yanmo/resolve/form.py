"""The run form, checked by the first task: a wrong value ends the run before a stage has worked."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from yanmo.common.errors import UsageError
from yanmo.options.fields import StageOptions
from yanmo.options.values import brief
from yanmo.options.whole_run import check_run
from yanmo.resolve.config import ResolveOptions


def checked_form(options: ResolveOptions, line: str) -> None:
    """Check the form and the line of other options, stage by stage.

    Raises:
        UsageError: a value that an option cannot have; begins with the field's name.
    """
    stages = {name: _options_of(name) for name in options.stages}
    check_run(stages, _by_stage(options.form), line)


def _by_stage(form: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for each in form:
        name, equals, value = each.partition("=")
        stage, dot, option = name.partition(".")
        if not (equals and dot):
            raise UsageError(f"--form {brief(each)}: expected STAGE.OPTION=VALUE")
        found.setdefault(stage, {})[option] = value
    return found


def _options_of(stage: str) -> type[StageOptions]:
    """By name: no stage knows another, and a `config.py` needs the standard library alone."""
    name = f"yanmo.{stage}.config"
    try:
        found: type[StageOptions] = importlib.import_module(name).STAGE.config
    except (ModuleNotFoundError, AttributeError, ValueError):
        raise UsageError(f"--stages {brief(stage)}: there is no such stage") from None
    return found
