"""The command line of `yanmo tokenizer`: one module per subcommand.

A command group of its own: `yanmo tokenize` is the stage, which makes one tokenizer and a token cache.
"""

from __future__ import annotations

from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand, work_of
from yanmo.tools.tokenizer import options

TOOL = tool.Tool(
    "tokenizer",
    "Compare tokenizers on your own text, or import one instead of building one.",
    {
        "compare": Subcommand(options.CompareOptions, work_of("yanmo.tools.tokenizer.compare")),
        "import": Subcommand(options.AdoptOptions, work_of("yanmo.tools.tokenizer.adopt")),
    },
)

if __name__ == "__main__":
    tool.run(TOOL)
