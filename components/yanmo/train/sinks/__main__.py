"""One sink of a training, as a process of its own: `python -m yanmo.train.sinks`, started by process.py.

It follows metrics.jsonl, which holds all that it has to hand over however long the place is away, so that
nothing has to be kept in memory. When its stdin is closed it ends after a last look, once that succeeds.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from yanmo.common.child_processes import end_with_parent
from yanmo.common.errors import in_words
from yanmo.common.logs import setup
from yanmo.train.sinks.sink import Follower, Sink, TrainingRun

log = logging.getLogger("yanmo.train.sinks")
_LOOK_SECONDS = 1.0
_MOST_SECONDS = 60.0
"""Longest wait between two tries of a place that fails."""


def main() -> int:
    """Follow until told to end, and until all is handed over; 1 where its library is not there."""
    given = json.loads(sys.argv[1])
    end_with_parent(given["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor hears it, and ends this one
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    setup(given["log_level"], "train", given["log_format"])
    for name in ("mlflow", "wandb", "tensorboard", "alembic", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    told = threading.Event()
    reply = list[str]()

    def listen() -> None:
        reply.append(sys.stdin.readline().strip())
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    run = TrainingRun(**given["run"])
    with contextlib.redirect_stdout(
        sys.stderr if given["log_level"] == "debug" else Path(os.devnull).open("w")
    ):
        return _follow(given["name"], given["target"], Path(given["folder"]), run, told, reply)


def open_sink(name: str, target: str) -> Sink:
    """Return the sink of a name; its library is imported with it.

    Raises:
        ImportError: its library is not installed.
    """
    if name == "tensorboard":
        from yanmo.train.sinks.tensorboard_files import TensorBoard

        return TensorBoard(target)
    if name == "mlflow":
        from yanmo.train.sinks.mlflow_server import MLflow

        return MLflow(target)
    from yanmo.train.sinks.wandb_run import WeightsAndBiases

    return WeightsAndBiases(target)


def _follow(
    name: str, target: str, folder: Path, run: TrainingRun, told: threading.Event, reply: list[str]
) -> int:
    """Hand over until told to end; a place that fails is opened again, and says what it has."""
    warned, wait = False, _LOOK_SECONDS
    while True:
        try:
            sink = open_sink(name, target)
            follower = Follower(folder, sink, run)
            os.nice(max(10 - os.nice(0), 0))  # not before: a database that has to be made takes its seconds
            while True:
                is_last = told.is_set()
                follower.hand_over()
                wait = _LOOK_SECONDS
                if is_last:
                    sink.end(reply == ["done"])
                    return 0
                told.wait(_LOOK_SECONDS)
        except ImportError as error:
            log.warning(
                "sink %s: %s; the training goes on without it; in Yanmo's checkout: pip install '.[%s]'",
                name,
                error,
                name,
            )
            return 1
        except Exception as error:  # whatever a library and its server may come up with
            if not warned:
                log.warning(
                    "sink %s: %s; the training goes on, and what is missing is handed over once it works",
                    name,
                    in_words(error),
                )
            warned = True
            if told.is_set():  # tried until the training ends this process, which says so
                time.sleep(_LOOK_SECONDS)
            else:
                told.wait(wait)
                wait = min(2 * wait, _MOST_SECONDS)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # what a library left running is not waited for
