"""The command line of `yanmo tokenizer`: one module per subcommand.

A command group of its own, not part of `tokenize`: comparing trains small models, and a data stage never
imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand
from yanmo.tools.tokenizer import adopt, compare

TOOL = tool.Tool(
    "tokenizer",
    "Compare tokenizers on your own text, or import one instead of building one.",
    {
        "compare": Subcommand(compare.CompareOptions, compare.run),
        "import": Subcommand(adopt.AdoptOptions, adopt.run),
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the process's exit code."""
    return tool.main(TOOL, argv)


def run() -> NoReturn:
    """`main` as a process."""
    tool.run(TOOL)
