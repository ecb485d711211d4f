"""`python -m yanmo.tokenize`."""

from yanmo.stage.run import run
from yanmo.tokenize.config import STAGE
from yanmo.tokenize.work import STEPS

if __name__ == "__main__":
    run(STAGE, STEPS)
