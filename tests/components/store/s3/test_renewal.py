"""Keys and authorities that are exchanged under a running process, on a radosgw of the test's own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from minio import Minio
from minio.error import S3Error
from servers import ceph
from servers.ceph import ACCESS_KEY, SECRET_KEY, Ceph, make_certificates

from yanmo.common.errors import EnvironmentFault, StorageError
from yanmo.store.opening import open_store

pytestmark = pytest.mark.skipif(bool(ceph.absent()), reason=ceph.absent())
NEW, NEXT = ("yanmo-tests-new", "another-secret-of-no-one"), ("yanmo-tests-next", "a-third-one")
DOCUMENTS = Path(__file__).parents[3] / "data/documents.jsonl"


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
    """By a GET, and by a HEAD, whose 403 has no body that says why."""
    store = open_store(bucket(server))
    store.create("a.json", b"1")
    server.new_key(NEW)
    server.end_key(ACCESS_KEY)
    arrives = threading.Timer(6.0, lambda: mount(secret, *NEW))
    arrives.start()
    began = time.monotonic()
    assert store.stat("a.json") is not None
    assert time.monotonic() - began >= 5.0, "it was refused until then"
    assert store.read("a.json")[0] == b"1"
    store.replace("a.json", b"2", store.read("a.json")[1])
    arrives.join()


def test_a_dead_key_is_waited_for_also_where_the_server_calls_it_a_missing_right(
    server: Rotating, secret: Path
) -> None:
    """radosgw 16 says AccessDenied, not InvalidAccessKeyId, of five of eight keys that died in use."""
    store = open_store(bucket(server))
    store.create("a.json", b"1")
    for number in range(30):
        old = (f"in-use-{number}", "a-secret")
        server.new_key(old)
        mount(secret, *old)
        assert store.read("a.json")[0] == b"1"
        if _code_after(server, old) == "AccessDenied":
            break
    else:
        pytest.fail("the server said it of none of 30 keys")
    arrives = threading.Timer(6.0, lambda: mount(secret, ACCESS_KEY, SECRET_KEY))
    arrives.start()
    began = time.monotonic()
    assert store.create("b.json", b"2")
    assert time.monotonic() - began >= 5.0, "it was refused until then"
    arrives.join()


def _code_after(server: Rotating, keys: tuple[str, str]) -> str:
    """End a key while requests are signed with it; what the server says of it then."""
    over, codes = threading.Event(), [""]

    def ask() -> None:
        while not over.is_set():
            try:
                list(client(server, keys).list_objects(bucket_name="rotated"))
            except S3Error as error:
                codes.append(error.code)

    asking = threading.Thread(target=ask)
    asking.start()
    server.end_key(keys[0])
    time.sleep(0.2)
    over.set()
    asking.join()
    return codes[-1]


def test_where_no_new_key_comes_the_end_is_75_and_says_where_it_was_sought(
    server: Rotating, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YANMO_S3_RETRY_SECONDS", "20")
    store = open_store(bucket(server))
    store.create("a.json", b"1")
    server.end_key(ACCESS_KEY)
    with pytest.raises(StorageError, match=rf"InvalidAccessKeyId.*refuses the key of.*{secret}.*goes on"):
        store.read("a.json")


def test_a_key_that_was_never_good_is_told_at_once(
    server: Rotating, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(secret, "nobody", "nothing")
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match="InvalidAccessKeyId"):
        open_store("s3://rotated/yanmo").read("a.json")
    monkeypatch.delenv("YANMO_S3_SECRET_DIR")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("YANMO_WAIT_SECONDS", "600")
    with pytest.raises(EnvironmentFault, match="InvalidAccessKeyId"):
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


def test_a_right_to_write_that_is_missing_is_told_at_once_though_reading_is_granted(
    server: Rotating, secret: Path
) -> None:
    store = open_store(bucket(server))
    store.create("a.json", b"1")
    reads = {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/reader"]}}
    reads |= {"Action": "s3:GetObject", "Resource": "arn:aws:s3:::rotated/*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [reads]})
    client(server, (ACCESS_KEY, SECRET_KEY)).set_bucket_policy(bucket_name="rotated", policy=policy)
    mount(secret, *ceph.make_user(server.folder, "reader"))
    assert store.read("a.json")[0] == b"1"
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match=r"403 AccessDenied.*s3:PutObject"):
        store.create("b.json", b"1")
    assert time.monotonic() - began < 30


def test_a_pod_that_begins_while_the_secret_is_on_its_way_waits_for_it(
    server: Rotating, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YANMO_WAIT_SECONDS", "600")
    uri = bucket(server)
    server.new_key(NEW)
    server.end_key(ACCESS_KEY)
    arrives = threading.Timer(6.0, lambda: mount(secret, *NEW))
    arrives.start()
    assert open_store(uri).create("a.json", b"1")
    arrives.join()


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


CURATE = (
    "--workers 1 --max-malformed-share 1 --max-filter-share 1 --test-characters 1000 --valid-characters 500"
)
TRAIN = (
    "--ranks 1 --batch-rows 8 --context 32 --layers 1 --width 16 --heads 1 --head-width 16 --feed-forward 32 "
    "--tied-head --start random --warmup-steps 1 --valid-characters 300 --checkpoint-steps 50 --steps 100000"
)


HERE_ONLY = "the last checkpoint is on this machine only"


class Begun:
    """A stage in a process of its own; what it logs is read while it runs."""

    def __init__(self, stage: str, uri: str, words: str, log: Path) -> None:
        command = [sys.executable, "-m", "yanmo.cli", stage, "--store", uri, "--channel", "main"]
        command += ["--inputs", "latest", "--metrics-port", "-1", *words.split()]
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stderr=file)

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def ended(self) -> int:
        return self.process.wait()

    def until(self, is_so: Callable[[], object]) -> None:
        """Return once it is so; the process must live."""
        while not is_so():
            assert self.process.poll() is None, self.said
            time.sleep(0.3)


def saves(server: Rotating, keys: tuple[str, str]) -> set[str]:
    """The versions of WORK.json in the bucket: another one for each checkpoint that has arrived."""
    found = client(server, keys).list_objects(
        bucket_name="rotated", prefix="yanmo/runs/train/", recursive=True
    )
    return {str(item.etag) for item in found if item.object_name.endswith("/WORK.json")}


@pytest.mark.process
def test_a_training_lives_through_a_new_key_and_keeps_its_checkpoint_where_none_comes(
    server: Rotating, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YANMO_S3_RETRY_SECONDS", "20")
    uri, raw, log = bucket(server), tmp_path / "raw.jsonl", tmp_path / "log"
    raw.write_text("".join(DOCUMENTS.read_text(encoding="utf-8").splitlines(keepends=True)[::3]))
    for stage, words in (
        ("curate", f"--sources {raw} {CURATE}"),
        ("tokenize", "--vocab-size 512 --workers 1"),
    ):
        done = Begun(stage, uri, words, log)
        assert done.ended() == 0, done.said

    training = Begun("train", uri, TRAIN, log)
    training.until(lambda: saves(server, (ACCESS_KEY, SECRET_KEY)))
    server.new_key(NEW)
    server.end_key(ACCESS_KEY)
    training.until(lambda: HERE_ONLY in training.said)
    assert f"the server refuses the key of the mounted Secret ({secret})" in training.said
    before = saves(server, NEW)
    mount(secret, *NEW)
    training.until(lambda: saves(server, NEW) - before)

    server.new_key(NEXT)
    server.end_key(NEW[0])
    training.until(lambda: training.said.count(HERE_ONLY) >= 2)
    training.process.terminate()
    assert training.ended() == 75, training.said
    kept = sorted((tmp_path / "scratch/kept").rglob("checkpoints/step-*"))
    assert kept, "what was saved last is on this machine"
    mount(secret, *NEXT)
    again = Begun("train", uri, f"{TRAIN} --max-seconds 1", log)
    assert again.ended() == 0, again.said
    resumed = re.search(r"resuming at step (\d+) of 100000", again.said)
    assert resumed and int(resumed[1]) >= int(kept[-1].name.removeprefix("step-")), again.said
