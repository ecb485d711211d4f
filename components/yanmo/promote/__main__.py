"""`python -m yanmo.promote`"""

import functools

from yanmo.promote.config import STAGE
from yanmo.promote.history.options import COMMANDS
from yanmo.stage.help_first import answer_help

if __name__ == "__main__":
    answer_help(STAGE, COMMANDS)

    from yanmo.common.command_end import as_process
    from yanmo.common.process_age import process_started
    from yanmo.promote.command import main

    as_process(functools.partial(main, started=process_started()))
