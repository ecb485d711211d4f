"""An S3 server for tests: the one that the environment names, else Ceph from Debian's packages.

    AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and YANMO_TEST_S3_BUCKET (a bucket that
    exists; tests make and remove objects below prefixes of their own)

together replace Ceph, so that the same tests judge MinIO, SeaweedFS or AWS.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from servers import ceph, supervisor

TESTS = Path(__file__).parents[1]
_PREFIX = "yanmo-s3-"
GIVEN = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "YANMO_TEST_S3_BUCKET")


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """Where a server is and who may use it."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"
    tls_endpoint: str = ""
    """The same server over TLS, signed by `ca_path`; empty where there is none."""
    ca_path: str = ""
    bucket: str = ""
    """The one bucket that may be used; empty where tests make their own."""
    pids: tuple[int, ...] = ()
    """Of our own daemons."""
    connection: socket.socket | None = field(default=None, repr=False, compare=False)
    """Keeps our own server alive while it is open."""

    def environment(self, endpoint: str = "") -> dict[str, str]:
        """The variables that a stage needs to reach it (or a proxy in front of it, at `endpoint`)."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
        }

    def client(self, *, tls: bool = False) -> Any:
        """A `minio.Minio` for the tests' own looks at the server."""
        import urllib3
        from minio import Minio

        parts = urlsplit(self.tls_endpoint if tls else self.endpoint)
        pool = urllib3.PoolManager(ca_certs=self.ca_path or None, timeout=30)
        return Minio(
            endpoint=parts.netloc, access_key=self.access_key, secret_key=self.secret_key, region=self.region,
            secure=parts.scheme == "https", http_client=pool,
        )  # fmt: skip

    def user(self, name: str) -> S3Server:
        """The same server for another user, made when absent, who has no rights but what policies give.

        Raises:
            RuntimeError: the server is a given one, where nobody may make users.
        """
        if self.bucket:
            raise RuntimeError("users are made on our own server only")
        keys = ceph.make_user(Path(self.ca_path).parent, name)
        return dataclasses.replace(self, access_key=keys[0], secret_key=keys[1])

    def new_bucket(self) -> str:
        """An empty bucket (or, on a given server, a prefix in its bucket) as `bucket` or `bucket/prefix`."""
        name = f"yanmo-{uuid.uuid4().hex[:12]}"
        if self.bucket:
            return f"{self.bucket}/{name}"
        self.client().make_bucket(bucket_name=name)
        return name

    def remove_bucket(self, place: str) -> None:
        """Remove what `new_bucket` gave, with everything in it and its unfinished uploads."""
        from minio.deleteobjects import DeleteObject

        bucket, _, prefix = place.partition("/")
        client = self.client()
        found = client.list_objects(bucket_name=bucket, prefix=prefix or None, recursive=True)
        names = (DeleteObject(item.object_name) for item in found)
        for error in client.remove_objects(bucket_name=bucket, delete_object_list=names):
            raise OSError(f"{bucket}: {error}")
        uploads = client._list_multipart_uploads(bucket_name=bucket, prefix=prefix or None).uploads
        for upload in uploads:
            client._abort_multipart_upload(
                bucket_name=bucket, object_name=upload.object_name, upload_id=upload.upload_id
            )
        if not self.bucket:
            client.remove_bucket(bucket_name=bucket)


def absent() -> str:
    """Why there is no S3 server for tests here, in words; empty where there is one."""
    given = [name for name in GIVEN if os.environ.get(name)]
    if len(given) == len(GIVEN):
        return ""
    if "YANMO_TEST_S3_BUCKET" in given:
        missing = ", ".join(name for name in GIVEN if name not in given)
        return f"YANMO_TEST_S3_BUCKET is set, {missing} not"
    return ceph.absent()


def borrow(session: str) -> S3Server:
    """The server of the environment, or that of the test session `session`, started when it does not run yet.

    Our own server lives until every process that borrowed it has ended.

    Raises:
        RuntimeError: it did not start; holds the ends of its logs.
    """
    if all(os.environ.get(name) for name in GIVEN):
        endpoint, access_key, secret_key, bucket = (os.environ[name] for name in GIVEN)
        region = os.environ.get("AWS_REGION", "us-east-1")
        return S3Server(
            endpoint=endpoint, access_key=access_key, secret_key=secret_key, bucket=bucket, region=region
        )
    sweep()
    connection, address = _connect(Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}-{session[:16]}")
    return S3Server(
        endpoint=address["endpoint"],
        tls_endpoint=address["tls_endpoint"],
        ca_path=address["ca_path"],
        access_key=ceph.ACCESS_KEY,
        secret_key=ceph.SECRET_KEY,
        pids=tuple(address["pids"]),
        connection=connection,
    )


def _connect(folder: Path) -> tuple[socket.socket, dict[str, Any]]:
    with Path(f"{tempfile.gettempdir()}/{_PREFIX}{os.getuid()}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of several workers starts it
        try:
            return _join(folder)
        except (FileNotFoundError, ConnectionError):
            _start(folder)
        return _join(folder)


def _join(folder: Path) -> tuple[socket.socket, dict[str, Any]]:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(10)
        connection.connect(str(folder / supervisor.SOCKET))
        with connection.makefile() as file:
            line = file.readline()
        if not line:
            raise ConnectionError(f"{folder}: the server is ending")
    except BaseException:
        connection.close()
        raise
    return connection, json.loads(line)


def _start(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "servers.supervisor", str(folder)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)}, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    if '"endpoint"' not in line:
        raise RuntimeError(json.loads(line)["error"] if line else "its supervisor ended without a word")


def sweep() -> None:
    """Remove folders of servers whose supervisor was killed; its daemons were killed with it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{os.getuid()}-*"):
        lock = folder / supervisor.LOCK
        try:
            with lock.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except (FileNotFoundError, NotADirectoryError, BlockingIOError):
            continue
