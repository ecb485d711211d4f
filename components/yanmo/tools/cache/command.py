"""The command line of `yanmo cache`: one module per subcommand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from yanmo.tools import command_group as tool
from yanmo.tools.cache import diff, plan, show, verify

TOOL = tool.Tool(
    "cache",
    "Show, check and compare token caches.",
    {"show": show, "verify": verify, "diff": diff, "plan": plan},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""
    return tool.main(TOOL, argv)


def run() -> NoReturn:
    """`main` as a process."""
    tool.run(TOOL)
