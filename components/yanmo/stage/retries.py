"""A stage that ended with 75 is tried again in its own process, where --wait-seconds allows it.

What passes (the store is away, gc took an input, another run took the lease, a worker was killed) is tried
again by the same command, and in a pod nobody may be there to give it: KFP 2.17 retries no pod that failed.
Each try is the whole stage: it finds what is committed, its checkpoints, or another run's output.

Requests to the store are tried again where they are made, for as long (store/s3/retry.py); here comes what
is left. Waits grow, and they count together until a try has run well for ten minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from yanmo.common import waiting
from yanmo.common.errors import ExitCode, WorkerLost, advice, exit_code
from yanmo.common.logs import human_seconds

log = logging.getLogger(__name__)
T = TypeVar("T")
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 300.0
_WELL_SECONDS = 600.0
"""A try that ran for so long, without its waits, was no failure at its start."""
MOST_LOST, LOST_WITHIN_SECONDS = 3, 86_400.0
"""At the third lost worker of a day the stage ends: it is lost inside this pod, and may be each time."""


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
