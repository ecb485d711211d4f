"""`python -m yanmo.promote`"""

import functools

from yanmo.promote.config import STAGE
from yanmo.stage.help_first import answer_help

if __name__ == "__main__":
    answer_help(STAGE)

    from yanmo.common.command_end import as_process
    from yanmo.promote.command import main
    from yanmo.stage.cost import process_started

    as_process(functools.partial(main, started=process_started()))
