"""`--help` of a stage before what its work needs is imported: 0.2 seconds in place of 0.8."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from yanmo.options.fields import Options, default_argv
from yanmo.options.help import help_first
from yanmo.stage.declaration import Stage

NO_COMMANDS: Mapping[str, type[Options]] = MappingProxyType({})


def answer_help(stage: Stage, commands: Mapping[str, type[Options]] = NO_COMMANDS) -> None:
    """Print what the process's command line asks for with `--help` or `--version`, and end; else do nothing.

    A wrong use of them is left to the stage itself, which says so in the way of all its errors.

    Args:
        commands: subcommands that the stage has beside its work -> their options (`yanmo promote history`).
    """
    words = default_argv(None)
    if words and words[0] in commands:
        help_first(commands[words[0]], f"yanmo {stage.name} {words[0]}", words[1:])
    elif words and words[0].startswith("-"):
        help_first(stage.config, f"yanmo {stage.name}", words)
