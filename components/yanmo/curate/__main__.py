"""`python -m yanmo.curate`."""

import os

from yanmo.curate.config import STAGE
from yanmo.options.help import answer_help

if __name__ == "__main__":
    answer_help(STAGE)

    # Arrow's own allocator hands pages back and asks for them again: 5 % of the CPU time, 50 MB more at the
    # peak. It is asked for when Arrow is imported, here and by the workers, which inherit this.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from yanmo.curate.phases import STEPS
    from yanmo.stage.run import run

    run(STAGE, STEPS)
