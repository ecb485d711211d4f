from yanmo.evaluate.config import STAGE
from yanmo.evaluate.work import STEPS
from yanmo.stage.run import run

if __name__ == "__main__":
    run(STAGE, STEPS)
