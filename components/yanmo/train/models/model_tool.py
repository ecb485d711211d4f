"""`yanmo model ...`: models that `yanmo train` did not make."""

from __future__ import annotations

from yanmo.common import tool
from yanmo.train.models import hf_import

TOOL = tool.Tool("model", "Bring models from elsewhere into a store.", {"import": hf_import})

if __name__ == "__main__":
    tool.run(TOOL)
