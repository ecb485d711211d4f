from yanmo.evaluate.config import STAGE
from yanmo.evaluate.work import assist, finish, prepare, work
from yanmo.stage.run import run

if __name__ == "__main__":
    run(STAGE, work, prepare=prepare, finish=finish, assist=assist)
