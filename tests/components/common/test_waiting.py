"""How long this process has waited, and what it was asked to wait for no longer."""

from __future__ import annotations

import threading
import time

from yanmo.common.waiting import Cancellation, Wait, seconds_of, total_of


def test_waits_are_added_up_while_they_last_and_afterwards() -> None:
    before = total_of("lease")
    for number in (1, 2):
        with Wait("lease") as wait:
            wait.because("another run makes it")
            time.sleep(0.05)
            assert 0.05 <= seconds_of("lease") < 30
            assert number * 0.05 <= total_of("lease") - before < 30
        assert seconds_of("lease") == 0
    assert 0.1 <= total_of("lease") - before < 30


def test_a_wait_ends_soon_after_the_one_above_it_was_cancelled() -> None:
    above = Cancellation()
    began = time.monotonic()
    threading.Timer(0.2, above.set).start()
    Cancellation(above).wait(30)
    assert time.monotonic() - began < 15, "it slept on"
