"""`yanmo runs`: the runs of a store side by side."""

from yanmo.common.command_end import as_process
from yanmo.tools.runs.command import main

if __name__ == "__main__":
    as_process(main)
