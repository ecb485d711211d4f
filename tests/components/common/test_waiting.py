"""How long this process has waited, and what it was asked to wait for no longer."""

from __future__ import annotations

import threading
import time

import pytest

from yanmo.common import waiting
from yanmo.common.waiting import Wait, seconds_of, total_of
from yanmo.store.cancellation import Cancellation


def test_waits_are_added_up_while_they_last_and_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setitem(waiting._ledgers, "lease", waiting._Ledger("lease", lambda: now[0]))
    for seconds, total in ((5.0, 5.0), (7.0, 12.0)):
        with Wait("lease") as wait:
            wait.because("another run makes it")
            now[0] += seconds
            assert (seconds_of("lease"), total_of("lease")) == (seconds, total)
        now[0] += 100
        assert (seconds_of("lease"), total_of("lease")) == (0, total)


def test_a_wait_ends_soon_after_the_one_above_it_was_cancelled() -> None:
    above = Cancellation()
    began = time.monotonic()
    threading.Timer(0.2, above.set).start()
    Cancellation(above).wait(30)
    assert time.monotonic() - began < 15, "it slept on"
