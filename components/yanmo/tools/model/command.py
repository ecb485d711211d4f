"""`yanmo model ...`: models that `yanmo train` did not make."""

from __future__ import annotations

from yanmo.tools import command_group as tool
from yanmo.tools.model import hf_import

TOOL = tool.Tool("model", "Import models that were made elsewhere into a store.", {"import": hf_import})

if __name__ == "__main__":
    tool.run(TOOL)
