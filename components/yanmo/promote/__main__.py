from yanmo.common.stage_run import run
from yanmo.promote.config import STAGE
from yanmo.promote.work import finish, prepare, work

if __name__ == "__main__":
    run(STAGE, work, prepare=prepare, finish=finish)
