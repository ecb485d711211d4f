"""The command line of `yanmo cache`: one module per subcommand."""

from __future__ import annotations

from yanmo.tools import command_group as tool
from yanmo.tools.cache import options
from yanmo.tools.command_group import Subcommand, work_of

TOOL = tool.Tool(
    "cache",
    "Show a token cache, and plan a training's rows from it.",
    {
        "show": Subcommand(options.CacheShowOptions, work_of("yanmo.tools.cache.show")),
        "plan": Subcommand(options.PlanOptions, work_of("yanmo.tools.cache.plan")),
    },
)

if __name__ == "__main__":
    tool.run(TOOL)
