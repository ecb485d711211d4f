"""`python -m yanmo_pipelines.cluster.launch`"""

import functools

from yanmo.options.help import answer_help
from yanmo_pipelines.cluster.launch.reap import ReapOptions
from yanmo_pipelines.launch_options import STAGE

if __name__ == "__main__":
    answer_help(STAGE, {"reap": ReapOptions})

    from yanmo.common.command_end import as_process, process_started
    from yanmo_pipelines.cluster.launch.command import main

    as_process(functools.partial(main, started=process_started()))
