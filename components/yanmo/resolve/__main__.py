"""`python -m yanmo.resolve`"""

from yanmo.options.help import answer_help
from yanmo.resolve.config import STAGE

if __name__ == "__main__":
    answer_help(STAGE)

    from yanmo.common.command_end import as_process
    from yanmo.resolve.command import main

    as_process(main)
