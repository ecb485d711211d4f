"""`yanmo export`: a model as a folder that other programs load."""

from yanmo.common.command_end import as_process
from yanmo.tools.export.command import main

if __name__ == "__main__":
    as_process(main)
