"""The command line of `yanmo store`: one module per subcommand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand
from yanmo.tools.store import cost, cp, diff, gc, lineage, ls, mend, migrate, show, verify

TOOL = tool.Tool(
    "store",
    "Look into a store, check it, clean it, copy from it.",
    {
        "ls": Subcommand(ls.LsOptions, ls.run),
        "show": Subcommand(show.ShowOptions, show.run),
        "verify": Subcommand(verify.VerifyOptions, verify.run),
        "diff": Subcommand(diff.DiffOptions, diff.run),
        "gc": Subcommand(gc.GcOptions, gc.run),
        "cost": Subcommand(cost.CostOptions, cost.run),
        "cp": Subcommand(cp.CpOptions, cp.run),
        "lineage": Subcommand(lineage.LineageOptions, lineage.run),
        "mend": Subcommand(mend.MendOptions, mend.run),
        "migrate": Subcommand(migrate.MigrateOptions, migrate.run),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""
    return tool.main(TOOL, argv)


def run() -> NoReturn:
    """`main` as a process."""
    tool.run(TOOL)
