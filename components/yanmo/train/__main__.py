"""`python -m yanmo.train`"""

from yanmo.options.help import answer_help
from yanmo.train.config import STAGE

if __name__ == "__main__":
    answer_help(STAGE)

    from yanmo.nights.observer import NightObserver
    from yanmo.stage.run import run
    from yanmo.stage.stage_run import Steps
    from yanmo.train.supervision.automatic import settle
    from yanmo.train.supervision.committed import forget
    from yanmo.train.supervision.supervisor import alone, assist, prepare, work
    from yanmo.train.supervision.unfinished import failed

    run(
        STAGE,
        Steps(
            work,
            settle=settle,
            prepare=prepare,
            alone=alone,
            finish=forget,
            failed=failed,
            assist=assist,
            observer=NightObserver,
        ),
    )
