"""Keys and authorities that are exchanged under a running process, on a radosgw of the test's own."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from minio import Minio
from servers import ceph
from servers.ceph import ACCESS_KEY, SECRET_KEY, Ceph, make_certificates

from yanmo.common.errors import EnvironmentFault
from yanmo.store.opening import open_store

pytestmark = pytest.mark.skipif(bool(ceph.absent()), reason=ceph.absent())
NEW = ("yanmo-tests-new", "another-secret-of-no-one")


class Rotating(Ceph):
    """A server whose keys and certificate change."""

    def new_key(self, pair: tuple[str, str]) -> None:
        keys = (f"--access-key={pair[0]}", f"--secret-key={pair[1]}")
        self._run("radosgw-admin", "key", "create", "--uid=tests", "--key-type=s3", *keys)

    def end_key(self, access: str) -> None:
        self._run("radosgw-admin", "key", "rm", "--uid=tests", "--key-type=s3", f"--access-key={access}")

    def another_certificate(self) -> Path:
        """Restart the gateway with a certificate of a new authority; the new authority's file."""
        gateway = self._daemons.pop()
        gateway.kill()
        gateway.wait()
        new = self.folder / "new"
        new.mkdir()
        ca, cert, key = make_certificates(new)
        cert.replace(self.folder / "server.pem")
        key.replace(self.folder / "server.key")
        self._daemons.append(self._daemon("radosgw", "-n", "client.rgw"))
        self._wait_for_s3()
        return ca


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotating]:
    folder = Path(f"/tmp/yanmo-rotation-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    server = Rotating(folder)
    server.start()
    yield server
    server.stop()
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
def secret(tmp_path: Path, server: Rotating, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mounted Secret that holds the old key; nothing else says one."""
    for name in [n for n in os.environ if n.startswith(("AWS_", "MINIO_", "YANMO_S3", "SSL_CERT"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "secret"
    mount(folder, ACCESS_KEY, SECRET_KEY)
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(folder))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("YANMO_S3_RETRY_SECONDS", "60")
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    return folder


def mount(folder: Path, access: str, secret: str) -> None:
    """Exchange the Secret as the kubelet does: a new folder, and one rename of the link to it."""
    folder.mkdir(exist_ok=True)
    data = folder / f"..{time.monotonic_ns()}"
    data.mkdir()
    (data / "access_key_id").write_text(access)
    (data / "secret_access_key").write_text(secret)
    link = folder / "..data_tmp"
    link.symlink_to(data.name)
    link.replace(folder / "..data")
    for name in ("access_key_id", "secret_access_key"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def client(server: Rotating, keys: tuple[str, str]) -> Any:
    """The test's own look at the server."""
    return Minio(
        endpoint=server.endpoint.removeprefix("http://"), access_key=keys[0], secret_key=keys[1],
        secure=False, region="us-east-1", http_client=urllib3.PoolManager(timeout=30),
    )  # fmt: skip


def bucket(server: Rotating) -> str:
    client(server, (ACCESS_KEY, SECRET_KEY)).make_bucket(bucket_name="rotated")
    return "s3://rotated/yanmo"


def test_a_key_that_dies_is_waited_for_until_the_new_one_is_in_the_file(
    server: Rotating, secret: Path
) -> None:
    store = open_store(bucket(server))
    store.create("a.json", b"1")
    server.new_key(NEW)
    server.end_key(ACCESS_KEY)
    arrives = threading.Timer(6.0, lambda: mount(secret, *NEW))
    arrives.start()
    began = time.monotonic()
    assert store.read("a.json")[0] == b"1"
    assert time.monotonic() - began >= 5.0, "it was refused until then"
    store.replace("a.json", b"2", store.read("a.json")[1])
    arrives.join()


def test_a_key_that_was_never_good_is_told_at_once(
    server: Rotating, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(secret, "nobody", "nothing")
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match=r"InvalidAccessKeyId"):
        open_store("s3://rotated/yanmo").read("a.json")
    monkeypatch.delenv("YANMO_S3_SECRET_DIR")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    with pytest.raises(EnvironmentFault, match=r"InvalidAccessKeyId"):
        open_store("s3://rotated/yanmo").read("a.json")
    assert time.monotonic() - began < 30, "a person waits, or no new key can arrive"


def test_a_right_that_is_missing_is_told_at_once(server: Rotating, secret: Path) -> None:
    """No new key brings it: also where the server took this process's key before, and by a HEAD."""
    store = open_store(bucket(server))
    store.create("a.json", b"1")
    mount(secret, *ceph.make_user(server.folder, "stranger"))
    began = time.monotonic()
    for look in (store.read, store.stat):
        with pytest.raises(EnvironmentFault, match="403 AccessDenied"):
            look("a.json")
    assert time.monotonic() - began < 30


def test_a_new_authority_is_seen_in_the_file_that_holds_it(
    server: Rotating, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = bucket(server)
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(server.ca_path.read_bytes())
    monkeypatch.setenv("AWS_CA_BUNDLE", str(trusted))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.tls_endpoint)
    store = open_store(uri)
    store.create("a.json", b"1")
    new = server.another_certificate()
    arrives = threading.Timer(6.0, lambda: trusted.write_bytes(new.read_bytes()))
    arrives.start()
    assert store.read("a.json")[0] == b"1"
    arrives.join()
