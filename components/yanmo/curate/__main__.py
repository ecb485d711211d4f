"""`python -m yanmo.curate`."""

from yanmo.common.stage_run import run
from yanmo.curate.config import STAGE
from yanmo.curate.phases import finish, prepare, work

if __name__ == "__main__":
    run(STAGE, work, prepare=prepare, finish=finish)
