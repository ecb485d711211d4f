"""`python -m yanmo.evaluate`"""

from yanmo.evaluate.config import STAGE
from yanmo.options.help import answer_help

if __name__ == "__main__":
    answer_help(STAGE)

    from yanmo.evaluate.work import STEPS
    from yanmo.stage.run import run

    run(STAGE, STEPS)
