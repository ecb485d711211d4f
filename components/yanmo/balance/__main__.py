"""`python -m yanmo.balance`."""

from yanmo.balance.config import STAGE
from yanmo.balance.phases import STEPS
from yanmo.stage.run import run

if __name__ == "__main__":
    run(STAGE, STEPS)
