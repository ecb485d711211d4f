"""`python -m yanmo.promote`"""

import functools

from yanmo.options.help import answer_help
from yanmo.promote.config import STAGE
from yanmo.promote.history.options import COMMANDS

if __name__ == "__main__":
    answer_help(STAGE, COMMANDS)

    from yanmo.common.command_end import as_process, process_started
    from yanmo.promote.command import main

    as_process(functools.partial(main, started=process_started()))
