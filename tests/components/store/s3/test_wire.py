"""What goes over the wire to an S3 server, and what we make of its answers.

The server here is a small HTTP listener that answers as told: some answers no real server gives on demand.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import http.server
import logging
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yanmo.common.address import redacted
from yanmo.common.errors import (
    EnvironmentFault,
    ExitCode,
    StorageError,
    UsageError,
    advice,
    exit_code,
)
from yanmo.store.objects import AlreadyExists, Changed, ObjectStore, Wanted
from yanmo.store.opening import open_store
from yanmo.store.s3 import retry as s3_retry
from yanmo.store.s3.client import connect
from yanmo.store.s3.files import _bucket, open_s3
from yanmo.store.s3.store import S3Store
from yanmo.tools.store.command import main as ls

LAST_MODIFIED = "Sun, 22 Nov 2026 03:00:00 GMT"
KEY, SECRET = "AKIDEXAMPLE", "a-secret-that-must-not-be-shown"


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    """Content-Length that is announced, where it is not the body's."""


def xml_error(status: int, code: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()
    return Answer(status, body, {"Content-Type": "application/xml"})


class Told:
    """A server that records requests and answers by a function of (request, how many came before)."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request, int], Answer | None] = lambda request, n: Answer()
        self.cut: int | None = None
        """Bytes of its head after which the next answer ends, once."""
        self.heads: list[bytes] = []
        """Of the answers that were whole."""
        told = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the client's word on the head

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = Request(self.command, self.path, dict(self.headers), body)
                told.requests.append(request)
                answer = told.answer(request, len(told.requests) - 1)
                if answer is None:  # the work is done and the answer lost
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                length = len(answer.body) if answer.length is None else answer.length
                usual = {"Content-Length": str(length), "ETag": '"v0"', "Last-Modified": LAST_MODIFIED}
                for name, value in {**usual, **answer.headers}.items():
                    if value:
                        self.send_header(name, value)
                head = b"".join(self._headers_buffer) + b"\r\n"  # type: ignore[attr-defined]
                if told.cut is not None:
                    self.wfile.write(head[: told.cut])
                    told.cut, self.close_connection = None, True
                    return
                told.heads.append(head)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)
                self.close_connection = answer.length is not None

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_one

            def log_message(self, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def told() -> Iterator[Told]:
    server = Told()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def store(told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Store:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "YANMO_S3_ADDRESSING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", told.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("YANMO_S3_RETRY_SECONDS", "1.0")
    found = open_store("s3://bucket/prefix")
    assert isinstance(found, S3Store)
    return found


def conditional(store: S3Store) -> S3Store:
    store._conditional = True  # the probe has its own tests
    return store


def test_a_create_sends_if_none_match_as_a_header_and_never_as_metadata(told: Told, store: S3Store) -> None:
    told.answer = lambda request, n: Answer(headers={"ETag": '"v1"'})
    assert conditional(store).create("pointers/a.json", b"{}") == '"v1"'
    (put,) = told.requests
    assert (put.method, put.path, put.body) == ("PUT", "/bucket/prefix/pointers/a.json", b"{}")
    assert put.headers["If-None-Match"] == "*"
    assert not [name for name in put.headers if name.lower().startswith("x-amz-meta")]
    assert put.headers["x-amz-content-sha256"] == hashlib.sha256(b"{}").hexdigest()
    assert "if-none-match" in put.headers["Authorization"].lower(), "signed with the rest"


def test_a_replace_sends_the_version_as_if_match(told: Told, store: S3Store) -> None:
    told.answer = lambda request, n: Answer(headers={"ETag": '"v2"'})
    conditional(store).replace("a", b"2", '"v1"')
    assert told.requests[0].headers["If-Match"] == '"v1"'
    store._quoted = False
    store.replace("a", b"2", '"v1"')
    assert told.requests[1].headers["If-Match"] == "v1"


def test_a_large_body_is_checked_by_the_server_through_its_md5(told: Told, store: S3Store) -> None:
    data = b"x" * 100_000
    folder = store.writable("cas/a/b/c")
    (folder / "f").write_bytes(data)
    store.publish("cas/a/b/c", ["f"])
    headers = told.requests[0].headers
    assert headers["Content-MD5"] == base64.b64encode(hashlib.md5(data).digest()).decode()
    assert headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


def test_a_first_412_means_that_another_one_was_there(told: Told, store: S3Store) -> None:
    told.answer = lambda request, n: xml_error(412, "PreconditionFailed")
    with pytest.raises(AlreadyExists):
        conditional(store).create("a", b"1")
    with pytest.raises(Changed):
        store.replace("a", b"1", '"v"')
    assert [request.method for request in told.requests] == ["PUT", "PUT"]


@pytest.mark.parametrize(
    ("there", "ours"), [(b"1", True), (b"another run's", False)], ids=["ours", "another's"]
)
def test_a_412_after_a_lost_answer_is_followed_by_a_look_at_who_won(
    told: Told, store: S3Store, there: bytes, ours: bool
) -> None:
    def answer(request: Request, n: int) -> Answer | None:
        if n == 0:
            return None
        if request.method == "PUT":
            return xml_error(412, "PreconditionFailed")
        return Answer(body=there, headers={"ETag": '"v1"'})

    told.answer = answer
    if ours:
        assert conditional(store).create("a", b"1") == '"v1"'
    else:
        with pytest.raises(AlreadyExists):
            conditional(store).create("a", b"1")
    assert [request.method for request in told.requests] == ["PUT", "PUT", "GET"]


def test_a_404_to_a_replace_after_a_lost_answer_is_followed_by_a_look(told: Told, store: S3Store) -> None:
    def answer(request: Request, n: int) -> Answer | None:
        if n == 0:
            return None
        if request.method == "PUT":
            return xml_error(404, "NoSuchKey")
        return Answer(body=b"2", headers={"ETag": '"v2"'})

    told.answer = answer
    assert conditional(store).replace("a", b"2", '"v1"') == '"v2"'
    told.answer = lambda request, n: xml_error(404, "NoSuchKey")
    with pytest.raises(Changed):
        store.replace("a", b"2", '"v1"')


PASSING = [
    (429, "SlowDown"),
    (503, "SlowDown"),
    (409, "ConditionalRequestConflict"),
    (400, "RequestTimeout"),
    (403, "RequestTimeTooSkewed"),
]
HTML = Answer(503, b"<html>busy</html>", {"Content-Type": "text/html"})
"""Of a proxy."""


@pytest.mark.parametrize("failure", [*(xml_error(*one) for one in PASSING), HTML], ids=str)
def test_a_passing_failure_is_tried_again(told: Told, store: S3Store, failure: Answer) -> None:
    told.answer = lambda r, n: failure if n < 2 else Answer(body=b"ok", headers={"ETag": "v"})
    assert store.read("a") == (b"ok", "v")
    assert len(told.requests) == 3


def test_a_404_to_a_plain_put_is_tried_again_and_one_to_a_replace_means_that_it_is_gone(
    told: Told, store: S3Store
) -> None:
    """Ceph 16 says NoSuchKey to one of two creates at the same moment (met through the fault proxy)."""
    told.answer = lambda r, n: xml_error(404, "NoSuchKey") if n < 2 else Answer(headers={"ETag": '"v"'})
    (store.writable("cas/a/b/c") / "f").write_bytes(b"1")
    store.publish("cas/a/b/c", ["f"])
    assert len(told.requests) == 3
    told.requests.clear()
    assert conditional(store).create("a", b"1") == '"v"'
    told.requests.clear()
    with pytest.raises(Changed):
        store.replace("a", b"1", '"old"')
    assert [request.method for request in told.requests] == ["PUT", "GET"]


def test_a_404_to_a_replace_of_what_is_there_is_tried_again(told: Told, store: S3Store) -> None:
    """Ceph 16 says NoSuchKey to a PUT that meets the remains of an earlier, cut one of the same object."""

    def answer(request: Request, n: int) -> Answer:
        if request.method == "GET":
            return Answer(body=b"1", headers={"ETag": '"v1"'})
        return xml_error(404, "NoSuchKey") if n < 4 else Answer(headers={"ETag": '"v2"'})

    told.answer = answer
    assert conditional(store).replace("a", b"2", '"v1"') == '"v2"'
    assert [request.method for request in told.requests] == ["PUT", "GET", "PUT", "GET", "PUT"]


def test_a_404_to_a_replace_of_another_version_means_that_it_has_changed(told: Told, store: S3Store) -> None:
    found = Answer(body=b"1", headers={"ETag": '"v9"'})
    told.answer = lambda r, n: found if r.method == "GET" else xml_error(404, "NoSuchKey")
    with pytest.raises(Changed):
        conditional(store).replace("a", b"2", '"v1"')
    assert [request.method for request in told.requests] == ["PUT", "GET"]


def test_a_server_is_not_refused_for_such_a_404_to_its_probe(told: Told, store: S3Store) -> None:
    honest = _honest(told)
    asked: list[str] = []

    def answer(request: Request, n: int) -> Answer:
        tag = request.headers.get("If-Match")
        if tag:
            asked.append(tag)
            if asked.count(tag) == 1:
                return xml_error(404, "NoSuchKey")
        return honest(request, n)

    told.answer = answer
    assert store._probe() and [asked.count(tag) for tag in dict.fromkeys(asked)] == [1, 2]


def test_a_body_cut_short_is_tried_again(told: Told, store: S3Store) -> None:
    told.answer = lambda request, n: Answer(body=b"who", length=5) if n < 2 else Answer(body=b"whole")
    assert store.read("a")[0] == b"whole"


LISTING = (
    b'<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name>'
    b"<IsTruncated>false</IsTruncated><Contents><Key>prefix/a</Key><Size>5</Size>"
    b"<LastModified>2026-11-22T03:00:00.000Z</LastModified><ETag>&quot;v0&quot;</ETag></Contents>"
    b"</ListBucketResult>"
)
WHOLE = Wanted("cas/a/b/c/f", 5, hashlib.sha256(b"whole").hexdigest())


def answered(request: Request, n: int) -> Answer:
    """A server that has one object of five bytes and takes whatever it is sent."""
    if "uploadId=" in request.path and request.method == "POST":
        done = b"<CompleteMultipartUploadResult><Key>k</Key><ETag>v0</ETag></CompleteMultipartUploadResult>"
        return Answer(body=done, headers={"ETag": ""})
    if request.method == "POST":
        started = b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
        return Answer(body=started, headers={"ETag": ""})
    if request.method == "DELETE":
        return Answer(204, headers={"ETag": "", "Last-Modified": "", "Content-Length": ""})
    if "list-type=2" in request.path:
        return Answer(body=LISTING, headers={"ETag": ""})
    if "Range" in request.headers:
        return Answer(206, b"whole", {"Content-Range": "bytes 0-4/5"})
    if request.method == "HEAD":
        return Answer(length=20 if "large" in request.path else 5)
    return Answer(body=b"whole" if request.method == "GET" else b"")


def _publish(store: S3Store, data: bytes, name: str) -> object:
    (store.writable("cas/a/b/c") / name).write_bytes(data)
    return store.publish("cas/a/b/c", [name])


ASKED: dict[str, Callable[[S3Store], object]] = {
    "read": lambda store: store.read("a"),
    "stat": lambda store: store.stat("a"),
    "sizes": lambda store: store.sizes(["a", "b"]),
    "create": lambda store: store.create("a", b"whole"),
    "replace": lambda store: store.replace("a", b"whole", '"v"'),
    "fetch": lambda store: store.fetch([WHOLE])[0].read_bytes(),
    "digest": lambda store: store.digest("a"),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete("a"),
    "publish": lambda store: _publish(store, b"whole", "f"),
    "publish in parts": lambda store: _publish(store, b"x" * 20, "large"),
    "probe": lambda store: _probed(store),
}


def _probed(store: S3Store) -> bool | None:
    store._conditional = None
    store._check_conditions()
    return store._conditional


@pytest.mark.parametrize("asked", ASKED)
def test_an_answer_cut_at_any_byte_of_its_head_changes_nothing(
    told: Told, store: S3Store, asked: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Over plain HTTP the end of the stream looks like the end of the headers."""
    monkeypatch.setattr("yanmo.store.s3.retry._FIRST_WAIT", 0.0)
    monkeypatch.setattr("yanmo.store.s3.bucket.PART_BYTES", 10 if "parts" in asked else 8 << 20)
    monkeypatch.setattr("yanmo.store.s3.store.PART_BYTES", 10 if "parts" in asked else 8 << 20)
    store.bucket._retry_budget.seconds = 30.0
    honest = _honest(told) if asked == "probe" else answered
    ask = ASKED[asked]
    told.answer = honest
    expected = ask(conditional(store))
    heads = list(told.heads)
    for number, head in enumerate(heads):
        for at in range(len(head)) if len(heads) == 1 else _places(head):
            before = len(told.requests)

            def answer(request: Request, n: int, cut_at: int = before + number, at: int = at) -> Answer:
                told.cut = at if n == cut_at else None
                return honest(request, n)

            told.answer = answer
            shutil.rmtree(store.scratch.root, ignore_errors=True)
            assert ask(conditional(store)) == expected, (number, head[:at])
    assert "ignores conditional writes" not in caplog.text


def _places(head: bytes) -> list[int]:
    """In the middle of each line, and beside and between the bytes that end it."""
    found = set()
    start = 0
    while start < len(head):
        end = head.index(b"\r\n", start)
        found |= {start, (start + end) // 2, end, end + 1}
        start = end + 2
    return sorted(found)


def _honest(told: Told) -> Callable[[Request, int], Answer]:
    """A server that keeps conditional writes apart, as RFC 9110 has it."""
    held: dict[str, bytes] = {}

    def answer(request: Request, n: int) -> Answer:
        there = held.get(request.path)
        tag = f'"{hashlib.md5(there).hexdigest()}"' if there is not None else ""
        if request.method == "DELETE":
            held.pop(request.path, None)
            return Answer(204)
        if request.method == "GET":
            return (
                Answer(body=there, headers={"ETag": tag})
                if there is not None
                else xml_error(404, "NoSuchKey")
            )
        match = request.headers.get("If-Match")
        if (match and match != tag) or (request.headers.get("If-None-Match") and there is not None):
            return xml_error(412, "PreconditionFailed")
        held[request.path] = request.body
        return Answer(headers={"ETag": f'"{hashlib.md5(request.body).hexdigest()}"'})

    return answer


NEEDED = [
    ("read", ("ETag", "Content-Length")),
    ("stat", ("ETag", "Content-Length", "Last-Modified")),
    ("create", ("ETag",)),
    ("fetch", ("ETag", "Content-Range", "Content-Length")),
    ("publish", ("ETag",)),
]


@pytest.mark.parametrize(("asked", "name"), [(asked, name) for asked, names in NEEDED for name in names])
def test_an_answer_that_lacks_what_every_server_sends_ends_in_75_and_says_what(
    told: Told, store: S3Store, asked: str, name: str
) -> None:
    """A proxy that drops headers of whole answers: nobody may call the object damaged."""

    def answer(request: Request, n: int) -> Answer:
        found = answered(request, n)
        return dataclasses.replace(found, headers={**found.headers, name: ""})

    told.answer = answer
    with pytest.raises(StorageError, match=f"has no {name}, which every server sends") as caught:
        ASKED[asked](conditional(store))
    assert exit_code(caught.value) == ExitCode.RETRY and len(told.requests) > 1


def test_a_body_that_says_itself_where_it_ends_needs_no_length(told: Told, store: S3Store) -> None:
    chunks = b"5\r\nwhole\r\n0\r\n\r\n"
    told.answer = lambda r, n: Answer(
        body=chunks, headers={"Transfer-Encoding": "chunked", "Content-Length": ""}
    )
    assert store.read("a") == (b"whole", '"v0"')


def test_when_the_time_is_up_the_end_is_75_and_says_what_happened(told: Told, store: S3Store) -> None:
    told.answer = lambda request, n: xml_error(503, "SlowDown")
    with pytest.raises(
        StorageError, match=r"reading s3://bucket/prefix/a: \d+ tries in \d s .*503 SlowDown"
    ) as e:
        store.read("a")
    assert exit_code(e.value) == ExitCode.RETRY
    assert 2 <= len(told.requests) < 40


def test_a_server_that_cannot_be_reached_ends_in_75(store: S3Store, told: Told) -> None:
    told.server.shutdown()
    told.server.server_close()
    with pytest.raises(StorageError, match="connection refused or unreachable") as caught:
        store.read("a")
    assert exit_code(caught.value) == ExitCode.RETRY


FINAL = [
    (403, "AccessDenied", ExitCode.ENVIRONMENT, "check the credentials"),
    (403, "SignatureDoesNotMatch", ExitCode.ENVIRONMENT, "check the credentials"),
    (404, "NoSuchBucket", ExitCode.USAGE, "there is no such bucket"),
    (403, "QuotaExceeded", ExitCode.RETRY, "the store is full"),
    (507, "XMinioStorageFull", ExitCode.RETRY, "the store is full"),
]


@pytest.mark.parametrize(("status", "code", "ends", "words"), FINAL)
def test_what_no_retry_mends_ends_at_once_in_words(
    told: Told, store: S3Store, status: int, code: str, ends: ExitCode, words: str
) -> None:
    told.answer = lambda request, n: xml_error(status, code)
    with pytest.raises((EnvironmentFault, UsageError, StorageError), match=words) as caught:
        store.read("a")
    assert exit_code(caught.value) == ends and len(told.requests) == 1


def test_a_server_that_ignores_conditions_is_refused_at_the_first_write(told: Told, store: S3Store) -> None:
    held = forgetful(told)
    for _ in range(2):
        with pytest.raises(EnvironmentFault, match="ignores conditional writes"):
            store.create("a", b"1")
    with pytest.raises(EnvironmentFault, match="two runs could overwrite each other"):
        store.replace("a", b"3", '"x"')
    assert not held, "the probe's object is gone"


def forgetful(told: Told) -> dict[str, bytes]:
    """Lets the server keep objects without a look at conditions, as SeaweedFS before 3.97 did."""
    held: dict[str, bytes] = {}

    def answer(request: Request, n: int) -> Answer:
        if request.method == "PUT":
            held[request.path] = request.body
        if request.method == "DELETE":
            held.pop(request.path, None)
            return Answer(204)
        if request.path not in held:
            return xml_error(404, "NoSuchKey")
        tag = hashlib.md5(held[request.path]).hexdigest()
        return Answer(
            body=held[request.path] if request.method == "GET" else b"", headers={"ETag": f'"{tag}"'}
        )

    told.answer = answer
    return held


def test_a_clock_that_is_off_is_corrected_by_the_servers(told: Told, store: S3Store) -> None:
    told.answer = lambda request, n: Answer(body=b"x")
    store.read("a")
    store.bucket.client.pool.clock_offset = -7200.0
    dates = []

    def answer(request: Request, n: int) -> Answer:
        dates.append(request.headers["x-amz-date"])
        return Answer(body=b"x")

    told.answer = answer
    store.read("a")  # dated two hours ago; its answer's Date header mends the offset
    store.read("a")
    assert dates[0] < dates[1] and store.bucket.client.pool.clock_offset == 0.0


def test_no_message_and_no_log_line_shows_a_credential(
    told: Told, store: S3Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told.answer = lambda request, n: xml_error(403, "SignatureDoesNotMatch")
    with pytest.raises(EnvironmentFault) as caught:
        store.read("a")
    seen = caplog.text + str(caught.value) + repr(store.__dict__) + store.uri
    assert SECRET not in seen and "Signature=" not in seen


def test_waits_grow_and_are_never_the_same_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr("random.uniform", lambda low, high: limits.append(high) or 0.0)
    retry_budget = s3_retry.RetryBudget(60.0, SimpleNamespace(reached=True, clock_offset=0.0))
    retry = s3_retry.Retry("reading", retry_budget)
    tries = iter([ConnectionError()] * 12)

    def request() -> str:
        for error in tries:
            raise error
        return "done"

    assert retry.run(request) == "done"
    assert limits == sorted(limits) and limits[0] == 0.2 and limits[-1] == 15.0 and retry.failures == 12


@pytest.mark.parametrize(
    "endpoint",
    ["ftp://x", "http://h/path", "http://[a", "http://h#x", "a\nb", "诗", "http://h:123456", "x" * 5000],
)
def test_a_malformed_endpoint_is_a_usage_error(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(UsageError, match="expected http"):
        open_store("s3://bucket/prefix")


@pytest.mark.parametrize("endpoint", ["http://user:hunter2@s3.example:9", "user:hunter2@s3.example"])
def test_a_password_in_the_endpoint_is_refused_and_never_shown(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert ls(["ls", "--store=s3://bucket/prefix"]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert "hunter2" not in captured.err + captured.out and "***@s3.example" in captured.err
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    for flags in (
        [f"--endpoint={endpoint}", "--store=s3://bucket/p"],
        ["--store=s3://user:hunter2@bucket/p"],
    ):
        assert ls(["ls", *flags]) == ExitCode.USAGE
        captured = capsys.readouterr()
        assert "hunter2" not in captured.err + captured.out


PASSWORDS = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), max_size=8)


@settings(max_examples=200, deadline=None)
@given(PASSWORDS, PASSWORDS, st.sampled_from(["", "http://", "https://", "HTTP://"]), st.booleans())
def test_a_password_of_any_characters_is_never_shown(
    before: str, after: str, scheme: str, is_user: bool
) -> None:
    """`/`, `#`, `?`, `[` and `@` too, which should have been escaped."""
    password = f"{before}wJalr{after}K7MDENG"
    endpoint = f"{scheme}{password if is_user else 'AKIA:' + password}@minio:9000"
    with pytest.raises(UsageError) as caught:
        connect("s3", endpoint, 2)
    shown = f"{caught.value} {advice(caught.value)}"
    assert "wJalr" not in shown and "MDENG" not in shown and "***" in shown
    if not {"'", '"'} & set(password) and not re.search(r"\s", password):
        for address in (f"http://AKIA:{password}@h/x", f"s3://AKIA:{password}@bucket/x"):
            assert "MDENG" not in redacted(f"looking at {address}, and again"), address


@pytest.mark.parametrize(
    ("variable", "holds", "found"),
    [
        ("AWS_CA_BUNDLE", None, "No such file or directory"),
        ("SSL_CERT_FILE", "no certificate", r"\[X509: NO_CERTIFICATE_OR_CRL_FOUND\]"),
    ],
)
def test_a_ca_file_that_cannot_be_used_is_named_with_its_variable(
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variable: str,
    holds: str | None,
    found: str,
) -> None:
    path = tmp_path / "ca.pem"
    if holds is not None:
        path.write_text(holds)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setenv(variable, str(path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:9")
    with pytest.raises(EnvironmentFault, match=rf"{variable}={path}: expected a PEM file .*, found: {found}"):
        open_store("s3://bucket/prefix")


@pytest.mark.parametrize("refusal", [(403, "AccessDenied"), (501, "NotImplemented")])
@pytest.mark.parametrize("command", ["ls", "gc"])
def test_to_look_takes_no_more_rights_than_to_read(
    told: Told, store: S3Store, refusal: tuple[int, str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unfinished uploads, which gc looks for, can be listed by few; neither writes or probes anything."""
    empty = b"<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated></ListBucketResult>"

    def answer(request: Request, n: int) -> Answer:
        return xml_error(*refusal) if "uploads" in request.path else Answer(body=empty)

    told.answer = answer
    assert ls([command, "--store=s3://bucket/prefix"]) == 0
    assert ("unfinished uploads are left out" in capsys.readouterr().err) == (command == "gc")
    assert {request.method for request in told.requests} == {"GET"}


def test_a_raw_file_that_shrank_is_told_where_the_server_looks_at_no_if_match(
    told: Told, store: S3Store
) -> None:
    _bucket.cache_clear()  # other tests had other servers
    told.answer = lambda r, n: Answer(length=100) if r.method == "HEAD" else answered(r, n)
    with open_s3("s3://bucket/raw.txt") as stream, pytest.raises(StorageError, match="changed while it was"):
        stream.read()
    told.answer = lambda r, n: Answer(length=100) if r.method == "HEAD" else xml_error(416, "InvalidRange")
    with open_s3("s3://bucket/raw.txt") as stream, pytest.raises(StorageError, match="changed while it was"):
        stream.read()
