"""`yanmo watch`: follow a training in the terminal."""

from yanmo.options.help import help_first
from yanmo.tools.watch.options import WatchOptions

if __name__ == "__main__":
    help_first(WatchOptions, "yanmo watch")

    from yanmo.common.command_end import as_process
    from yanmo.tools.watch.command import main

    as_process(main)
