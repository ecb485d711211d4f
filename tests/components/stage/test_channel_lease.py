"""One training a channel at a time: by processes, as two nights are."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from yanmo.stage.channel_lease import Busy, alone_in
from yanmo.store.file_store import FileStore
from yanmo.store.runs.in_use import LEASE
from yanmo.store.runs.lease import live_holder

HOLDS = """
import sys
from pathlib import Path
from yanmo.store.file_store import FileStore
from yanmo.stage.channel_lease import alone_in
with alone_in(FileStore(Path(sys.argv[1])), "train", "main", "run-1", waits=False, ttl=3):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Another run of channel main, until its stdin is closed."""
    command = [sys.executable, "-c", HOLDS, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


def leases(folder: Path) -> list[Path]:
    return list(folder.rglob(LEASE))


def test_a_second_night_ends_with_a_word_of_who_trains(tmp_path: Path) -> None:
    other = holder(tmp_path)
    try:
        with (
            pytest.raises(
                Busy, match=r"another training of channel main is at work \(run run-1 on .+ since 20"
            ),
            alone_in(FileStore(tmp_path), "train", "main", waits=False, ttl=3),
        ):
            pytest.fail("two at once")
        with alone_in(FileStore(tmp_path), "train", "other", waits=False, ttl=3):
            pass  # another channel's night is no matter
    finally:
        other.communicate("")
    with alone_in(FileStore(tmp_path), "train", "main", waits=False, ttl=3):
        (lease,) = leases(tmp_path)
        name = str(lease.relative_to(tmp_path))
        assert live_holder(name, lease.read_bytes(), 0.0) == "", "gc and status take it for nobody's work"
    assert not leases(tmp_path), "nothing is left behind"


def test_a_night_that_was_killed_keeps_nobody_out(tmp_path: Path) -> None:
    other = holder(tmp_path)
    other.kill()
    other.wait()
    with alone_in(FileStore(tmp_path), "train", "main", waits=False, ttl=3):
        pass


def test_a_night_that_was_killed_elsewhere_keeps_nobody_out_for_longer_than_its_lease(tmp_path: Path) -> None:
    """Whose process cannot be looked at: it counts as dead when its lease stays as it is."""
    other = holder(tmp_path)
    other.kill()
    other.wait()
    (lease,) = leases(tmp_path)
    lease.write_text(json.dumps({**json.loads(lease.read_text()), "machine": "elsewhere/1/2"}))
    with alone_in(FileStore(tmp_path), "train", "main", waits=False, ttl=3):
        pass


def test_one_that_waits_begins_when_the_other_ends(tmp_path: Path) -> None:
    other, began = holder(tmp_path), threading.Event()

    def night() -> None:
        with alone_in(FileStore(tmp_path), "train", "main", waits=True, ttl=3):
            began.set()

    thread = threading.Thread(target=night)
    thread.start()
    time.sleep(2.5)
    assert not began.is_set()
    other.communicate("")
    thread.join(60)
    assert began.is_set() and not leases(tmp_path)
