from yanmo.common.stage_run import run
from yanmo.evaluate.config import STAGE
from yanmo.evaluate.work import assist, finish, prepare, work

if __name__ == "__main__":
    run(STAGE, work, prepare=prepare, finish=finish, assist=assist)
