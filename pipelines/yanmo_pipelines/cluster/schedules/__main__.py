"""`python -m yanmo_pipelines.cluster.schedules`"""

from yanmo.common.command_end import as_process
from yanmo_pipelines.cluster.schedules.command import main

if __name__ == "__main__":
    as_process(main)
