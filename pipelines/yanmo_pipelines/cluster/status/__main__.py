"""`yanmo status`."""

from yanmo.options.help import help_first
from yanmo_pipelines.cluster.status.options import StatusOptions

if __name__ == "__main__":
    help_first(StatusOptions, "yanmo status")

    from yanmo.common.command_end import as_process
    from yanmo_pipelines.cluster.status.command import main

    as_process(main)
