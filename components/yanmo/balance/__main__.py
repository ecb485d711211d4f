"""`python -m yanmo.balance`."""

from yanmo.balance.config import STAGE
from yanmo.balance.phases import finish, prepare, work
from yanmo.stage.run import run

if __name__ == "__main__":
    run(STAGE, work, prepare=prepare, finish=finish)
