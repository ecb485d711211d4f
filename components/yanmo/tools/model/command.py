"""`yanmo model ...`: models that `yanmo train` did not make."""

from __future__ import annotations

from yanmo.tools import command_group as tool
from yanmo.tools.command_group import Subcommand, work_of
from yanmo.tools.model import options

TOOL = tool.Tool(
    "model",
    "Import models that were made elsewhere into a store.",
    {"import": Subcommand(options.ImportOptions, work_of("yanmo.tools.model.hf_import"))},
)

if __name__ == "__main__":
    tool.run(TOOL)
