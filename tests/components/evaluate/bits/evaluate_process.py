"""`yanmo evaluate` with small, slow pieces, killed at one of them: name number ranks folder [arguments...].

It begins when so many ranks have left a file in the folder, is killed when it writes the piece `number` of
that name (none has the name `-`), and prints the pieces that it wrote. Whatever the speed of the machine, no
rank is done before each has had its turn: after its first piece of bits a rank waits until every other one
has written one too, or is where it is killed.
"""

import os
import signal
import sys
import time
from pathlib import Path

from yanmo.common.answers import answer
from yanmo.evaluate import work
from yanmo.evaluate.bits import of_documents as scoring
from yanmo.evaluate.bits.pieces import KeptPieces
from yanmo.evaluate.config import STAGE
from yanmo.stage.run import main

SECONDS = 0.05
"""That a piece takes."""


def evaluate(name, number, ranks, folder, argv):
    written, original = [], KeptPieces._write

    def write(self, path, body):
        piece = path.rpartition("/")[2]
        if name in piece:
            if len(written) == number:
                leave(folder, "turn")
                os.kill(os.getpid(), signal.SIGKILL)
            written.append(path)
        original(self, path, body)
        answer(piece)
        if "bits" in piece and name not in piece:
            leave(folder, "turn")
            wait_for_others(folder, "turn", ranks)
        time.sleep(SECONDS)

    KeptPieces._write = write
    scoring._PIECE_TOKENS = 300
    return main(STAGE, work.STEPS, argv)


def leave(folder, what):
    (folder / f"{what}-{os.getpid()}").touch()


def wait_for_others(folder, what, ranks):
    while len(list(folder.glob(f"{what}-*"))) < ranks:
        time.sleep(0.01)


if __name__ == "__main__":
    ranks, folder = int(sys.argv[3]), Path(sys.argv[4])
    leave(folder, "ready")
    wait_for_others(folder, "ready", ranks)
    name = "no piece" if sys.argv[1] == "-" else sys.argv[1]
    sys.exit(evaluate(name, int(sys.argv[2]), ranks, folder, sys.argv[5:]))
