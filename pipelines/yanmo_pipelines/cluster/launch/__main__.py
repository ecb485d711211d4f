"""`python -m yanmo_pipelines.cluster.launch`"""

import functools

from yanmo.stage.help_first import answer_help
from yanmo_pipelines.cluster.launch.reap import ReapOptions
from yanmo_pipelines.launch_options import STAGE

if __name__ == "__main__":
    answer_help(STAGE, {"reap": ReapOptions})

    from yanmo.common.command_end import as_process
    from yanmo.common.process_age import process_started
    from yanmo_pipelines.cluster.launch.command import main

    as_process(functools.partial(main, started=process_started()))
