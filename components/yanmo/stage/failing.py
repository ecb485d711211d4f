"""How a stage says that it failed."""

from __future__ import annotations

import logging
from pathlib import Path

from yanmo.common.errors import ExitCode, advice, report, shortened
from yanmo.common.log_lines import last_line
from yanmo.stage.declaration import Stage
from yanmo.stage.rerun import in_a_pod
from yanmo.store.runs.failure_card import Card, details_of

log = logging.getLogger(__name__)
_FOR_GOOD = (ExitCode.USAGE, ExitCode.DATA, ExitCode.ENVIRONMENT)
_LONGEST_COMMAND = 4000
TERMINATION_LOG = Path("/dev/termination-log")
"""Where a container leaves its last words; Kubernetes makes the file, in pods alone."""
_MOST_BYTES = 3000
"""Of a termination message; Kubernetes takes 4,096 of a container, and 12 kB of all of a pod's."""


def failed(stage: Stage, error: Exception, again: str, run_id: str = "") -> int:
    """Log what went wrong and what to do, and the last words; returns the exit code for it.

    Args:
        again: the command that runs the stage again; "" for none.
        run_id: of the pipeline, for the card.
    """
    say_details(error, stage.name)
    code = report(error, log)
    last_words(stage, int(code), advice(error), again)
    leave_message(Card.of(stage.name, error, again, run_id).lines())
    return int(code)


def last_words(stage: Stage, code: int, cause: str, again: str) -> None:
    """Log how the stage is run again, and last, in one short line, what ended it.

    In a shell the same command is no advice where it would end so again.
    """
    if again and (code not in _FOR_GOOD or in_a_pod()):
        command = again if len(again) <= _LONGEST_COMMAND else shortened(again)
        log.error("to run it again%s: %s", ", once that is mended" if code in _FOR_GOOD else "", command)
    line = last_line(stage.name, code, cause)
    log.error("%s", line)
    why = " ".join(cause.split())
    whole = [] if line.endswith(why) else [f"why: {why}"]  # what was cut from the line
    leave_message([line, *whole, *([f"to run it again: {again}"] if again else [])])


def say_details(error: BaseException, stage: str) -> None:
    """Log what the error's own line will not say: which rank, what the others did, the last checkpoint."""
    if details_of(error) is not None:
        for line in Card.of(stage, error).details():
            log.error("%s", line)


def leave_message(lines: list[str], path: Path | None = None) -> None:
    """Make these lines the pod's termination message; nothing where there is no pod.

    Args:
        path: the file that Kubernetes made; by default where it makes it.
    """
    path = path or TERMINATION_LOG
    if not path.is_file():
        return
    data = "\n".join(lines).encode("utf-8", "replace")
    if len(data) > _MOST_BYTES:  # the command at its end matters as much as the beginning
        data = data[: _MOST_BYTES * 2 // 3] + b" ... " + data[-_MOST_BYTES // 3 :]
    try:
        path.write_text(data.decode("utf-8", "ignore") + "\n", encoding="utf-8")
    except OSError as error:
        log.debug("no termination message: %s", error)


def show_earlier(last: Card | None) -> None:
    """Log how the last try of this key ended."""
    if last:
        log.info("an earlier try ended at %s: %s", last.made_at, "; ".join(last.lines()[:3]))
