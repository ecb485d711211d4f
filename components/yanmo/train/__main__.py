"""`python -m yanmo.train`"""

from yanmo.stage.help_first import answer_help
from yanmo.train.config import STAGE

if __name__ == "__main__":
    answer_help(STAGE)

    from yanmo.stage.run import run
    from yanmo.stage.stage_run import Steps
    from yanmo.train.nodes.follower import follow
    from yanmo.train.supervision.automatic import settle
    from yanmo.train.supervision.busy import alone
    from yanmo.train.supervision.grid import prepare
    from yanmo.train.supervision.of_channel import failed
    from yanmo.train.supervision.supervisor import forget, work

    run(
        STAGE,
        Steps(
            work,
            settle=settle,
            prepare=prepare,
            alone=alone,
            finish=forget,
            failed=failed,
            assist=follow,
        ),
    )
