"""`python -m yanmo.curate`."""

from yanmo.curate.config import STAGE
from yanmo.curate.phases import STEPS
from yanmo.stage.run import run

if __name__ == "__main__":
    run(STAGE, STEPS)
