"""`yanmo model ...`: models that `yanmo train` did not make."""

from __future__ import annotations

from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand
from yanmo.tools.model import hf_import

TOOL = tool.Tool(
    "model",
    "Import models that were made elsewhere into a store.",
    {"import": Subcommand(hf_import.ImportOptions, hf_import.run)},
)

if __name__ == "__main__":
    tool.run(TOOL)
