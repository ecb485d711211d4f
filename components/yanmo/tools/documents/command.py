"""The command line of `yanmo documents`: one module per subcommand."""

from __future__ import annotations

import functools

from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand, work_of
from yanmo.tools.documents import options

TOOL = tool.Tool(
    "documents",
    "Show what curate dropped and changed, and why.",
    {
        "show": Subcommand(options.ShowOptions, work_of("yanmo.tools.documents.show")),
        "diff": Subcommand(options.DiffOptions, work_of("yanmo.tools.documents.diff")),
    },
)
main = functools.partial(tool.main, TOOL)
"""Run one subcommand and return the process's exit code."""
