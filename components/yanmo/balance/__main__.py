"""`python -m yanmo.balance`."""

from yanmo.balance.config import STAGE
from yanmo.balance.phases import finish, work
from yanmo.common.stage_run import run

if __name__ == "__main__":
    run(STAGE, work, finish=finish)
