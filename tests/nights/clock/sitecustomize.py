"""Run by Python as it starts, where libfaketime sets the clock: 0.9.10 has each sleep fail.

It leaves the monotonic clock as it is (FAKETIME_DONT_FAKE_MONOTONIC) but adds its offset to the end of a
clock_nanosleep by that clock, on which time.sleep rests: EINVAL. A real clock that is off does nothing of it.
"""

import select
import time


def sleep(seconds: float) -> None:
    select.select((), (), (), seconds)


time.sleep = sleep
