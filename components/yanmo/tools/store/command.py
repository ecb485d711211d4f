"""The command line of `yanmo store`: one module per subcommand."""

from __future__ import annotations

import functools

from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand, work_of
from yanmo.tools.store import options

TOOL = tool.Tool(
    "store",
    "Look into a store, check it, clean it, copy from it.",
    {
        "ls": Subcommand(options.LsOptions, work_of("yanmo.tools.store.ls")),
        "show": Subcommand(options.ShowOptions, work_of("yanmo.tools.store.show")),
        "verify": Subcommand(options.VerifyOptions, work_of("yanmo.tools.store.verify")),
        "diff": Subcommand(options.DiffOptions, work_of("yanmo.tools.store.diff")),
        "gc": Subcommand(options.GcOptions, work_of("yanmo.tools.store.gc")),
        "cp": Subcommand(options.CpOptions, work_of("yanmo.tools.store.cp")),
        "lineage": Subcommand(options.LineageOptions, work_of("yanmo.tools.store.lineage")),
    },
)
main = functools.partial(tool.main, TOOL)
"""Run one subcommand and return the process's exit code."""
