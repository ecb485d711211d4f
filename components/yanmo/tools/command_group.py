"""The command line of a command group (`yanmo store`, `yanmo cache`): one module per subcommand.

What a person or a script asked for goes to stdout; progress and complaints go to stderr.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from yanmo.common.command_end import as_process, ended
from yanmo.common.logs import setup
from yanmo.options.command_line import load_command
from yanmo.options.fields import default_argv
from yanmo.options.shared import ToolOptions
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import default_store, store_of

T = TypeVar("T", bound=ToolOptions)


@dataclass(frozen=True)
class Subcommand(Generic[T]):
    """A subcommand: its options, whose docstring is its help, and what it does with a store."""

    options: type[T]
    run: Callable[[ObjectStore, T], int]
    """Returns the exit code."""


def work_of(module: str) -> Callable[[ObjectStore, Any], int]:
    """`run` of a module, which is imported when that is called: `--help` needs the options alone."""

    def run(store: ObjectStore, options: Any) -> int:
        code: int = importlib.import_module(module).run(store, options)
        return code

    return run


@dataclass(frozen=True)
class Tool:
    """A command group."""

    name: str
    """As it is typed after `yanmo`."""
    description: str
    subcommands: Mapping[str, Subcommand[Any]]


def main(tool: Tool, argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""

    def serve() -> int:
        classes = {name: each.options for name, each in tool.subcommands.items()}
        name, options = load_command(classes, default_argv(argv), f"yanmo {tool.name}", tool.description)
        setup(options.log_level, tool.name, options.log_format)
        store = store_of(options, options.store or default_store())
        return tool.subcommands[name].run(store, options)

    return ended(tool.name, serve, "nothing half-written is visible; run the same command again to go on")


def run(tool: Tool) -> NoReturn:
    """`main`, as the last line of a group's `__main__`."""
    as_process(functools.partial(main, tool))
