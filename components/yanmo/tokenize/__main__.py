"""`python -m yanmo.tokenize`"""

from yanmo.options.help import answer_help
from yanmo.tokenize.config import STAGE

if __name__ == "__main__":
    answer_help(STAGE)

    from yanmo.stage.run import run
    from yanmo.tokenize.work import STEPS

    run(STAGE, STEPS)
