"""The S3 server for tests is a real one, is shared, and ends with its users."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest
from processes import fields_of, is_alive

from servers import s3
from servers.s3 import S3Server

TESTS = Path(__file__).parents[1]
BORROWER = """
import sys, time
from servers import s3
server = s3.borrow(sys.argv[1])
print(*server.pids, flush=True)
time.sleep(600)
"""


def borrower(session: str) -> tuple[subprocess.Popen[str], list[int]]:
    command = [sys.executable, "-c", BORROWER, session]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, [int(word) for word in process.stdout.readline().split()]


def test_two_processes_share_one_server_and_kill_9_of_both_leaves_none(s3_server: S3Server) -> None:
    if s3_server.bucket:
        pytest.skip("the given server is not ours to end")
    session = uuid.uuid4().hex
    (first, pids), (second, same) = borrower(session), borrower(session)
    assert pids == same and len(pids) == 3 and all(map(is_alive, pids))
    for process in (first, second):
        assert all(map(is_alive, pids))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    end = time.monotonic() + 20
    folder = Path(tempfile.gettempdir()) / f"yanmo-s3-{os.getuid()}-{session[:16]}"
    while (any(map(is_alive, pids)) or folder.exists()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(is_alive, pids)) and not folder.exists()


def test_kill_9_of_the_supervisor_ends_the_daemons_and_its_folder_is_swept(s3_server: S3Server) -> None:
    if s3_server.bucket:
        pytest.skip("the given server is not ours to end")
    session = uuid.uuid4().hex
    process, pids = borrower(session)
    supervisor = int(fields_of(pids[0])[1])
    os.kill(supervisor, signal.SIGKILL)
    end = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(is_alive, pids))
    process.kill()
    process.communicate()
    s3.sweep()
    assert not (Path(tempfile.gettempdir()) / f"yanmo-s3-{os.getuid()}-{session[:16]}").exists()
