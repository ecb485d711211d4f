"""How a stage fails: it is tried again, or says why and by which command a person runs it again.

A stage that ended with 75 is tried again in its own process, where --wait-seconds allows it. What passes (the
store is away, gc took an input, another run took the lease, a worker was killed) is tried again by the same
command, and in a pod nobody may be there to give it: KFP 2.17 retries no pod that failed. Each try is the
whole stage: it finds what is committed, its checkpoints, or another run's output. Requests to the store are
tried again where they are made, for as long (store/s3/retry.py); here comes what is left. Waits grow, and
they count together until a try has run well for ten minutes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from yanmo.common import waiting
from yanmo.common.errors import ExitCode, UsageError, WorkerLost, advice, exit_code, report, shortened
from yanmo.common.logs import human_seconds, last_line
from yanmo.common.shell_words import shell_line
from yanmo.options.one_line import read_line
from yanmo.options.shared import StageOptions
from yanmo.stage.declaration import Stage
from yanmo.store.runs.failure_card import Card, details_of

log = logging.getLogger(__name__)
T = TypeVar("T")
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 300.0
_WELL_SECONDS = 600.0
"""A try that ran for so long, without its waits, was no failure at its start."""
MOST_LOST, LOST_WITHIN_SECONDS = 3, 86_400.0
"""At the third lost worker of a day the stage ends: it is lost inside this pod, and may be each time."""
_FOR_GOOD = (ExitCode.USAGE, ExitCode.DATA, ExitCode.ENVIRONMENT)
_LONGEST_COMMAND = 4000
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TERMINATION_LOG = Path("/dev/termination-log")
"""Where a container leaves its last words; Kubernetes makes the file, in pods alone."""
_MOST_BYTES = 3000
"""Of a termination message; Kubernetes takes 4,096 of a container, and 12 kB of all of a pod's."""


def until_it_ends(
    serve: Callable[[int], T],
    wait_seconds: float,
    *,
    tell: Callable[[Exception], None] = lambda error: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return what `serve` returns, once it ends with something else than an error of code 75.

    Args:
        serve: one try; is given its number, from 1.
        wait_seconds: the longest wait, 0 for a single try.
        tell: logs more of an error after which there is another try.

    Raises:
        Exception: the error of the last try: of another code, or the wait is over.
    """
    tries, wait, spent = 0, _FIRST_WAIT, 0.0
    lost: list[float] = []
    while True:
        tries += 1
        began, waited = clock(), waiting.total_of("store", "lease")
        try:
            return serve(tries)
        except Exception as error:
            waited = waiting.total_of("store", "lease") - waited
            now = clock()
            if now - began - waited > _WELL_SECONDS:
                wait, spent = _FIRST_WAIT, 0.0
            spent += waited
            lost = [at for at in lost if now - at < LOST_WITHIN_SECONDS]
            lost += [now] if isinstance(error, WorkerLost) else []
            passes = exit_code(error) == ExitCode.RETRY and not waiting.is_ending()
            if not passes or spent + wait > wait_seconds or len(lost) >= MOST_LOST:
                raise
            tell(error)
            log.warning("try %d failed: %s; again in %s", tries, advice(error), human_seconds(wait))
        with waiting.Wait("retry") as waits:
            waits.because("the last try failed")
            sleep(wait)
        spent += wait
        wait = min(2 * wait, _LONGEST_WAIT)


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


def leave_message(lines: list[str]) -> None:
    """Make these lines the pod's termination message; nothing where there is no pod."""
    if not TERMINATION_LOG.is_file():
        return
    data = "\n".join(lines).encode("utf-8", "replace")
    if len(data) > _MOST_BYTES:  # the command at its end matters as much as the beginning
        data = data[: _MOST_BYTES * 2 // 3] + b" ... " + data[-_MOST_BYTES // 3 :]
    try:
        TERMINATION_LOG.write_text(data.decode("utf-8", "ignore") + "\n", encoding="utf-8")
    except OSError as error:
        log.debug("no termination message: %s", error)


def show_earlier(last: Card | None) -> None:
    """Log how the last try of this key ended."""
    if last:
        log.info("an earlier try ended at %s: %s", last.made_at, "; ".join(last.lines()[:3]))


def rerun_command(stage: Stage, argv: Sequence[str], options: StageOptions | None = None) -> str:
    """Return the command; empty where `yanmo run` or a launch started the stage, which says its own.

    Args:
        argv: the arguments that the stage was given.
        options: what was read from them; None where they could not be read.
    """
    if not in_a_pod():
        is_task = any(word.startswith("--executor-input") for word in argv)
        return "" if is_task else shell_line(["yanmo", stage.name, *argv])
    if stage.name == "resolve":  # the first task, which checks the form
        return "yanmo submit, or Clone run in KFP's UI"
    # a training on several nodes is begun again by whoever launched it
    name = "launch" if getattr(options, "nnodes", 1) > 1 else stage.name
    words = ["yanmo", "rerun", name]
    if namespace := _namespace():
        words.append(f"--namespace={namespace}")
    if options is None:
        return shell_line(words)
    words.append(f"--channel={options.channel}")
    is_task = bool(options.executor_input) or name == "launch"
    inputs = f"run:{options.run_id}" if is_task and options.run_id else options.inputs
    words += [f"--inputs={inputs}"] if inputs not in ("", "latest") else []
    lines = [word.partition("=")[2] for word in argv if word.startswith("--options=")]
    given = {n: text for line in lines for n, text in _own(line, stage.name).items() if n != "take"}
    return shell_line([*words, *(f"--set={stage.name}.{n}={text}" for n, text in given.items())])


def _own(line: str, stage: str) -> dict[str, str]:
    """Return the options of `stage` in a line; none where it is no such line."""
    try:
        return read_line(line).get(stage, {})
    except UsageError:
        return {}


def _namespace() -> str:
    """Return the namespace of the pod that this is; "" where nothing says it."""
    try:
        return os.environ.get("YANMO_NAMESPACE") or _NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def in_a_pod() -> bool:
    """Return whether this process runs in a cluster, where nobody sees the command that began it."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
