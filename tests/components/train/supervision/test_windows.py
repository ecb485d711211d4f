"""A request to stop reaches the workers, whoever makes it and however full the disk is."""

from __future__ import annotations

import os
import signal

from yanmo.train.supervision.windows import _stop_file


def test_a_terminal_that_is_closed_stops_the_run_in_order_unless_nohup_says_otherwise(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the suite itself may run under nohup
    try:
        with _stop_file(tmp_path / "stop") as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert len(stopping) == 1 and (tmp_path / "stop").exists()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with _stop_file(tmp_path / "stop") as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stopping
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_stop_that_cannot_be_written_down_is_heard_all_the_same(tmp_path, caplog):
    with _stop_file(tmp_path / "no such folder" / "stop") as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(stopping) == 1
    assert "end without saving" in caplog.text
