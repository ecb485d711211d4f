"""`yanmo sweep`: the same training with several settings and seeds, and which setting is best."""

from yanmo.common.command_end import as_process
from yanmo_pipelines.sweep.command import main

if __name__ == "__main__":
    as_process(main)
