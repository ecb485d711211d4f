"""The command line of `yanmo cache`: one module per subcommand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from yanmo.tools import command_group as tool
from yanmo.tools.cache import diff, plan, show, verify
from yanmo.tools.command_group import Subcommand

TOOL = tool.Tool(
    "cache",
    "Show, check and compare token caches.",
    {
        "show": Subcommand(show.CacheShowOptions, show.run),
        "verify": Subcommand(verify.CacheVerifyOptions, verify.run),
        "diff": Subcommand(diff.CacheDiffOptions, diff.run),
        "plan": Subcommand(plan.PlanOptions, plan.run),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""
    return tool.main(TOOL, argv)


def run() -> NoReturn:
    """`main` as a process."""
    tool.run(TOOL)
