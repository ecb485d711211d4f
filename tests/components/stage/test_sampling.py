"""Measurements that may hang or fail, made beside a scrape."""

from __future__ import annotations

import threading

from yanmo.stage.run_telemetry import Sampler


def test_a_measurement_that_fails_is_said_once_and_made_again(caplog, monkeypatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    answers: list[object] = [OSError("away"), OSError("away"), 7]

    def measure() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(str(answer))

    sampler = Sampler(measure)
    found = [sampler.latest()]
    while answers:
        found.append(sampler.latest())
    while sampler.latest() is None:
        pass
    assert sampler.latest() == 7 and set(found) <= {None, 7}
    assert not raised, "a traceback of a thread in the log at each scrape"
    assert caplog.messages == ["a metric cannot be measured: OSError('away')"]
