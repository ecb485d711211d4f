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
from minio.error import S3Error
from processes import fields_of, is_alive

from servers import s3
from servers.fault_proxy import KINDS, FaultProxy, Faults
from servers.s3 import S3Server

TESTS = Path(__file__).parents[1]
BORROWER = """
import sys, time
from servers import s3
server = s3.borrow(sys.argv[1])
print(*server.pids, flush=True)
time.sleep(600)
"""


def put(server: S3Server, place: str, name: str, headers: dict[str, str]) -> str:
    bucket, _, prefix = place.partition("/")
    name = f"{prefix}/{name}" if prefix else name
    client = server.client()
    return str(client._put_object(bucket_name=bucket, object_name=name, data=b"x", headers=headers).etag)


def test_it_honours_conditions(s3_server: S3Server, s3_place: str) -> None:
    etag = put(s3_server, s3_place, "once", {"If-None-Match": "*"})
    for headers in ({"If-None-Match": "*"}, {"If-Match": "0123456789abcdef0123456789abcdef"}):
        with pytest.raises(S3Error, match="PreconditionFailed"):
            put(s3_server, s3_place, "once", headers)
    # Without quotes: Ceph 16 compares If-Match of a PUT byte by byte with its unquoted ETag.
    put(s3_server, s3_place, "once", {"If-Match": etag})


def test_it_answers_over_tls_to_who_trusts_its_authority(s3_server: S3Server, s3_place: str) -> None:
    if not s3_server.tls_endpoint:
        pytest.skip("the given server has one endpoint only")
    put(s3_server, s3_place, "over-tls", {})
    client = s3_server.client(tls=True)
    assert client.get_object(bucket_name=s3_place, object_name="over-tls").read() == b"x"


def test_a_bucket_is_removed_with_its_unfinished_uploads(s3_server: S3Server) -> None:
    place = s3_server.new_bucket()
    bucket = place.partition("/")[0]
    put(s3_server, place, "a/b", {})
    name = f"{place}/half".partition("/")[2]
    s3_server.client()._create_multipart_upload(bucket_name=bucket, object_name=name, headers={})
    s3_server.remove_bucket(place)
    assert bool(s3_server.bucket) == s3_server.client().bucket_exists(bucket_name=bucket)


def test_a_client_with_retries_gets_through_the_proxy(s3_server: S3Server, s3_place: str) -> None:
    import urllib3
    from minio import Minio

    bucket, _, prefix = s3_place.partition("/")
    retry = urllib3.Retry(
        total=10, backoff_factor=0.01, status_forcelist=[429, 500, 503], allowed_methods=None
    )
    data = os.urandom(300_000)
    # Not those that a client of http.client believes: an answer whose head is cut or lacks a header.
    kinds = set(KINDS) - {"cut_head", "drop_header"}
    faults = Faults(
        rates=dict.fromkeys(sorted(kinds), 0.2 / len(kinds)), delay_seconds=0.1, throttle_seconds=0.2
    )
    with FaultProxy(s3_server.endpoint, faults, seed=3) as proxy:
        client = Minio(
            endpoint=proxy.endpoint.removeprefix("http://"), access_key=s3_server.access_key, secure=False,
            secret_key=s3_server.secret_key, region=s3_server.region,
            http_client=urllib3.PoolManager(retries=retry, timeout=5),
        )  # fmt: skip
        for number in range(60):
            name = f"{prefix}/through-{number}".lstrip("/")
            client.put_object(bucket_name=bucket, object_name=name, data=io.BytesIO(data), length=len(data))
    assert len(proxy.met) > 3, proxy.report()
    found = s3_server.client().get_object(bucket_name=bucket, object_name=name).read()
    assert found == data


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
