import functools

from yanmo.common.command_end import as_process
from yanmo.promote.command import main
from yanmo.stage.cost import process_started

if __name__ == "__main__":
    as_process(functools.partial(main, started=process_started()))
