"""The command line of `yanmo cache`: one module per subcommand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from yanmo.tools import command_group as tool
from yanmo.tools.cache import options
from yanmo.tools.command_group import Subcommand, work_of

TOOL = tool.Tool(
    "cache",
    "Show, check and compare token caches.",
    {
        "show": Subcommand(options.CacheShowOptions, work_of("yanmo.tools.cache.show")),
        "verify": Subcommand(options.CacheVerifyOptions, work_of("yanmo.tools.cache.verify")),
        "diff": Subcommand(options.CacheDiffOptions, work_of("yanmo.tools.cache.diff")),
        "plan": Subcommand(options.PlanOptions, work_of("yanmo.tools.cache.plan")),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""
    return tool.main(TOOL, argv)


def run() -> NoReturn:
    """`main` as a process."""
    tool.run(TOOL)
