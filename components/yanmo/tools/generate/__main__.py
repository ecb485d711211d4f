"""`yanmo generate`: let a model go on from a text, or answer a question."""

from yanmo.common.command_end import as_process
from yanmo.tools.generate.command import main

if __name__ == "__main__":
    as_process(main)
