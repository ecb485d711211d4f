"""`yanmo sweep`: the same training with several settings and seeds, and which setting is best."""

from yanmo.options.help import help_first
from yanmo_pipelines.sweep.options import SweepOptions

if __name__ == "__main__":
    help_first(SweepOptions, "yanmo sweep")

    from yanmo.common.command_end import as_process
    from yanmo_pipelines.sweep.command import main

    as_process(main)
