"""The S3 server for tests is a real one, is shared, and ends with its users."""

from __future__ import annotations

import io
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


def test_a_bucket_is_removed_with_its_unfinished_uploads(s3_server: S3Server) -> None:
    place = s3_server.new_bucket()
    bucket = place.partition("/")[0]
    prefix = place.partition("/")[2]
    s3_server.client().put_object(
        bucket_name=bucket, object_name=f"{prefix}/a/b".lstrip("/"), data=io.BytesIO(b"x"), length=1
    )
    name = f"{place}/half".partition("/")[2]
    s3_server.client()._create_multipart_upload(bucket_name=bucket, object_name=name, headers={})
    s3_server.remove_bucket(place)
    assert bool(s3_server.bucket) == s3_server.client().bucket_exists(bucket_name=bucket)


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


def test_a_bucket_without_credentials_is_said_to_be_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in s3.GIVEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("YANMO_TEST_S3_BUCKET", "b")
    assert "AWS_ENDPOINT_URL" in s3.absent() and "is set" in s3.absent()
