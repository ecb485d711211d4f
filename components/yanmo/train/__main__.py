"""`python -m yanmo.train`"""

from yanmo.stage.run import run
from yanmo.stage.stage_run import Steps
from yanmo.train.config import STAGE
from yanmo.train.supervision.automatic import settle
from yanmo.train.supervision.busy import alone
from yanmo.train.supervision.grid import prepare
from yanmo.train.supervision.of_channel import failed
from yanmo.train.supervision.supervisor import forget, work

if __name__ == "__main__":
    run(STAGE, Steps(work, settle=settle, prepare=prepare, alone=alone, finish=forget, failed=failed))
