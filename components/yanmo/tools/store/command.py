"""The command line of `yanmo store`: one module per subcommand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from yanmo.tools import command_group as tool
from yanmo.tools.store import cp, diff, gc, lineage, ls, migrate, show, verify

TOOL = tool.Tool(
    "store",
    "Look into a store, check it, clean it, copy from it.",
    {
        "ls": ls,
        "show": show,
        "verify": verify,
        "diff": diff,
        "gc": gc,
        "cp": cp,
        "lineage": lineage,
        "migrate": migrate,
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""
    return tool.main(TOOL, argv)


def run() -> NoReturn:
    """`main` as a process."""
    tool.run(TOOL)
