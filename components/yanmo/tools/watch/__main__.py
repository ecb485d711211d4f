"""`yanmo watch`: follow a training in the terminal."""

from yanmo.common.command_end import as_process
from yanmo.tools.watch.command import main

if __name__ == "__main__":
    as_process(main)
