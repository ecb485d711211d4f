"""`python -m yanmo_pipelines.cluster.launch`"""

import functools

from yanmo.common.command_end import as_process
from yanmo.stage.cost import process_started
from yanmo_pipelines.cluster.launch.command import main

if __name__ == "__main__":
    as_process(functools.partial(main, started=process_started()))
