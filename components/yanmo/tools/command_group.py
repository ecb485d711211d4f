"""The command line of a command group (`yanmo store`, `yanmo cache`): common options, exit codes.

A subcommand is a module with HELP, `add_arguments(parser)` and `run(store, args) -> exit code`. What a
person or a script asked for goes to stdout; progress and complaints go to stderr.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from yanmo.common.command_end import as_process, ended
from yanmo.common.logs import setup
from yanmo.common.version import version
from yanmo.options.command_line import Parser, add_options
from yanmo.options.fields import STORE_OPTIONS, StageOptions
from yanmo.store.opening import store_of

_EPILOG = (
    "WHAT is an output: stage/key (the first 4 digits of the key are enough), channel/pointer "
    "(demo/champion) or a file with a reference. Exit codes: 0 done, 64 wrong options, 65 missing or "
    "damaged data, 70 a bug in Yanmo, 75 try again later, 78 something that this machine lacks."
)


@dataclass(frozen=True)
class Tool:
    """A command group."""

    name: str
    """As it is typed after `yanmo`."""
    description: str
    subcommands: Mapping[str, Any]
    """Subcommand -> its module."""


def main(tool: Tool, argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""

    def serve() -> int:
        args = _parser(tool).parse_args(argv)
        setup(args.log_level, tool.name)
        code: int = tool.subcommands[args.command].run(store_of(args), args)
        return code

    return ended(tool.name, serve, "nothing half-written is visible; run the same command again to go on")


def run(tool: Tool) -> NoReturn:
    """`main`, as the last line of a group's `__main__`."""
    as_process(functools.partial(main, tool))


def _parser(tool: Tool) -> argparse.ArgumentParser:
    parser = Parser(prog=f"yanmo {tool.name}", description=tool.description, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    common = _common()
    for name, module in tool.subcommands.items():
        sub = commands.add_parser(
            name, help=module.HELP, description=module.__doc__, parents=[common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_arguments(sub)
    return parser


def _common() -> Parser:
    common = Parser(add_help=False)
    add_options(common.add_argument_group("store"), StageOptions, (*STORE_OPTIONS, "log_level"))
    return common
