"""The command line of `yanmo nights`: one module per subcommand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand
from yanmo.tools.nights import hello, ls, rebuild, save

TOOL = tool.Tool(
    "nights",
    "Show a channel's nights, save their pages, try the chat that hears of them.",
    {
        "ls": Subcommand(ls.LsOptions, ls.run),
        "save": Subcommand(save.SaveOptions, save.run),
        "hello": Subcommand(hello.HelloOptions, hello.run),
        "rebuild": Subcommand(rebuild.RebuildOptions, rebuild.run),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""
    return tool.main(TOOL, argv)


def run() -> NoReturn:
    """`main` as a process."""
    tool.run(TOOL)
