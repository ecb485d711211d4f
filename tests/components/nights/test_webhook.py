"""A line to a chat, sent to a real server that answers well, badly, late, or not at all."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import logging
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from conftest import VERDICT, end_of, failure, run_of

from yanmo.nights.night import Row, Words
from yanmo.nights.settings import Webhook, webhook
from yanmo.nights.telling import tell_end, tell_verdict
from yanmo.nights.webhook import send
from yanmo.store.objects import ObjectStore
from yanmo.tools.nights.command import main

TOKEN, SECRET = "T0KEN-a8f3c2d1e", "SEC-000secret111"
ROW = Row(
    date="2026-11-23",
    run_id="run-1",
    began="2026-11-23T13:00:00+00:00",
    changed="2026-11-23T20:00:00+00:00",
    state="promoted",
    sentence=Words("Promoted: <!channel> & 1 % fewer bits.", "晋升：少用 1 % 比特。"),
    bits=8.102,
    survived=2,
    cost={"seconds": 7320.0},
)
Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclasses.dataclass
class Chat:
    """A server, and what it was sent."""

    url: str
    answers: list[Answer]
    """For each request in turn; the last one for all that follow."""
    got: list[tuple[str, dict[str, object]]] = dataclasses.field(default_factory=list)


def says(status: int, body: str = "ok", **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body.encode())), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body.encode())

    return answer


def drips(request: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for ten seconds: each of them within any time limit of a socket."""
    request.send_response(200)
    request.send_header("Content-Length", "100000")
    request.end_headers()
    for _ in range(20):
        request.wfile.write(b"x")
        request.wfile.flush()
        time.sleep(0.5)


def hangs(request: BaseHTTPRequestHandler) -> None:
    time.sleep(30)


def talks_nonsense(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"\x00\xff NOT HTTP\r\n" * 100)


@pytest.fixture
def chat() -> Iterator[Chat]:
    found = Chat("", [says(200)])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.got.append((self.path, json.loads(body)))
            answer = found.answers.pop(0) if len(found.answers) > 1 else found.answers[0]
            try:
                answer(self)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}/robot/send?access_token={TOKEN}"
    yield found
    server.shutdown()
    server.server_close()


def to(chat: Chat, shape: str = "json", secret: str = "") -> Webhook:
    return Webhook(url=chat.url, shape=shape, secret=secret)


def test_slack_gets_a_text_that_calls_nobody(chat: Chat) -> None:
    assert send(to(chat, "slack"), "nightly", ROW, "https://pages/x.html").is_sent
    [(_, body)] = chat.got
    assert body == {
        "text": "Yanmo nightly, night of 2026-11-23: Promoted: &lt;!channel&gt; &amp; 1 % fewer bits. "
        "(8.102 bits per character, 2 h 02 min, 2 failed tries survived) https://pages/x.html"
    }


def test_dingtalk_gets_a_signed_text_with_its_keyword(chat: Chat) -> None:
    chat.answers = [says(200, '{"errcode":0,"errmsg":"ok"}')]
    assert send(to(chat, "dingtalk", SECRET), "nightly", ROW, "").is_sent
    [(path, body)] = chat.got
    assert body["msgtype"] == "text" and set(body) == {"msgtype", "text"}
    assert body["text"] == {
        "content": "研墨 Yanmo nightly，2026-11-23 夜：晋升：少用 1 % 比特。"
        "（每字 8.102 比特，2 小时 02 分，挺过 2 次失败）"
    }
    query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
    assert set(query) == {"access_token", "timestamp", "sign"} and query["access_token"] == TOKEN
    assert abs(int(query["timestamp"]) / 1000 - time.time()) < 600
    said = f"{query['timestamp']}\n{SECRET}".encode()
    assert base64.b64decode(query["sign"]) == hmac.new(SECRET.encode(), said, hashlib.sha256).digest()


def test_the_signature_is_that_of_the_documented_form() -> None:
    """`this is secret` at 1577262236757, signed by openssl: dgst -sha256 -hmac, base64."""
    from yanmo.nights.webhook import signature

    signed = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", "this is secret", "-binary"],
        input=b"1577262236757\nthis is secret",
        capture_output=True,
        check=True,
    ).stdout
    query = parse_qs(signature("this is secret", "1577262236757"))
    assert base64.b64decode(query["sign"][0]) == signed and query["timestamp"] == ["1577262236757"]


def test_a_program_gets_all_of_the_row(chat: Chat) -> None:
    assert send(to(chat), "nightly", ROW, "https://pages/x.html").is_sent
    [(_, body)] = chat.got
    assert body["schema"] == "yanmo.night-line/1" and body["page"] == "https://pages/x.html"
    assert Row.of(body["night"]) == ROW  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "shape", "tries", "why"),
    [
        (says(500, f"oops {TOKEN}"), "slack", 3, "answered 500: oops ***"),
        (says(429), "slack", 3, "answered 429"),
        (says(404, f"no /robot/send?access_token={TOKEN} here"), "slack", 1, "answered 404"),
        (says(403, "invalid_token"), "slack", 1, "answered 403: invalid_token"),
        (says(302, "", Location="http://127.0.0.1:9/steal"), "slack", 1, "a redirect, which is not followed"),
        (says(307, "", Location="/robot/send"), "slack", 1, "a redirect, which is not followed"),
        (says(200, '{"errcode":310000,"errmsg":"sign not match"}'), "dingtalk", 1, "errcode 310000"),
        (says(200, '{"errcode":130101,"errmsg":"send too fast"}'), "dingtalk", 3, "errcode 130101"),
        (says(200, "<html>"), "dingtalk", 3, "no answer of DingTalk's"),
        (says(200, "[]"), "dingtalk", 3, "no answer of DingTalk's"),
        (talks_nonsense, "slack", 3, "no answer (BadStatusLine)"),
        (lambda request: request.connection.close(), "slack", 3, ""),
    ],
)
def test_a_server_that_refuses_is_asked_as_often_as_helps(
    chat: Chat, answer: Answer, shape: str, tries: int, why: str
) -> None:
    chat.answers = [answer]
    sent = send(to(chat, shape, SECRET), "nightly", ROW, "")
    assert not sent.is_sent and why in sent.why and len(chat.got) == tries
    assert TOKEN not in sent.why and SECRET not in sent.why and "sign=" not in sent.why


def test_what_passes_is_tried_again(chat: Chat) -> None:
    chat.answers = [says(503), says(200)]
    assert send(to(chat, "slack"), "nightly", ROW, "").is_sent and len(chat.got) == 2


@pytest.mark.parametrize("answer", [hangs, drips])
def test_a_server_that_never_ends_costs_no_more_than_its_time(chat: Chat, answer: Answer) -> None:
    chat.answers = [answer]
    began = time.monotonic()
    sent = send(to(chat, "slack"), "nightly", ROW, "", seconds=3.0)
    assert not sent.is_sent and "no answer within" in sent.why
    assert time.monotonic() - began < 25, "three seconds, on a machine that is busy with other work"


def test_a_port_where_nobody_listens_and_a_name_that_is_none() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = Webhook(url=f"http://127.0.0.1:{taken.getsockname()[1]}/{TOKEN}", shape="slack")
        assert send(closed, "n", ROW, "", tries=1).why == "connection refused"
    nowhere = Webhook(url=f"https://nowhere.invalid/{TOKEN}", shape="slack")
    sent = send(nowhere, "n", ROW, "", tries=1)
    assert not sent.is_sent and TOKEN not in sent.why


def test_a_certificate_that_nobody_trusts_is_said(tmp_path: Path) -> None:
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")]
    subprocess.run([*made, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            try:
                context.wrap_socket(connection, server_side=True).close()
            except OSError:
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        url = f"https://localhost:{listening.getsockname()[1]}/{TOKEN}"
        sent = send(Webhook(url=url, shape="slack"), "n", ROW, "", tries=1)
    assert sent.why == "its TLS certificate is not trusted; SSL_CERT_FILE names another CA"


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://host/{TOKEN}",
        f"https://me:{TOKEN}@host/",
        f"https:///{TOKEN}",
        f"https://host:port/{TOKEN}",
        f"https://host/ {TOKEN}",
        f"https://host/\r\nX: {TOKEN}",
        f"{TOKEN}",
        f"https://[::1/{TOKEN}",
    ],
)
def test_what_is_no_address_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("YANMO_WEBHOOK_URL", url)
    with pytest.raises(ValueError, match="YANMO_WEBHOOK_URL") as raised:
        webhook()
    assert TOKEN not in str(raised.value)


def test_the_address_says_the_shape_unless_somebody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = {"hooks.slack.com": "slack", "oapi.dingtalk.com": "dingtalk", "chat.example": "json"}
    for host, shape in shapes.items():
        monkeypatch.setenv("YANMO_WEBHOOK_URL", f"https://{host}/services/{TOKEN}")
        found = webhook()
        assert found is not None and found.shape == shape and TOKEN not in repr(found)
    monkeypatch.setenv("YANMO_WEBHOOK_SHAPE", "slack")  # Mattermost and others take Slack's
    assert webhook().shape == "slack"  # type: ignore[union-attr]
    monkeypatch.setenv("YANMO_WEBHOOK_SHAPE", "telegram")
    with pytest.raises(ValueError, match="expected slack, dingtalk, json"):
        webhook()


def test_a_mounted_secret_says_the_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(tmp_path))
    assert webhook() is None
    (tmp_path / "webhook_url").write_text(f"https://oapi.dingtalk.com/robot/send?access_token={TOKEN}\n")
    (tmp_path / "webhook_secret").write_text(SECRET)
    found = webhook()
    assert found == Webhook(url=found.url, shape="dingtalk", secret=SECRET)  # type: ignore[union-attr]
    (tmp_path / "webhook_url").write_text("https://chat.example/rotated")
    assert webhook().host == "chat.example"  # type: ignore[union-attr]


def test_a_night_is_told_once_for_each_state(
    store: ObjectStore, chat: Chat, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("YANMO_WEBHOOK_URL", chat.url)
    monkeypatch.setenv("YANMO_PAGES_URL", "https://pages.example/yanmo/")
    run = run_of(store)
    with caplog.at_level(logging.DEBUG):
        tell_end(run, end_of("resolve"), by_chat=False)
        tell_end(run, failure())
        tell_end(run, failure("evaluate failed beside it"))
        tell_end(run, end_of("train"))
        tell_verdict(run, VERDICT)
        tell_verdict(run, VERDICT)
    states = [body["night"]["state"] for _, body in chat.got]  # type: ignore[index]
    assert states == ["failed", "promoted"]
    assert {body["page"] for _, body in chat.got} == {
        "https://pages.example/yanmo/nights/nightly/2026-11-23-run-1.html"
    }
    shown = "".join(store.read(info.name)[0].decode() for info in store.list(""))
    assert TOKEN not in caplog.text and TOKEN not in shown


def test_a_chat_that_fails_is_a_warning(
    store: ObjectStore, chat: Chat, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("YANMO_WEBHOOK_URL", chat.url)
    chat.answers = [says(403, TOKEN)]
    tell_verdict(run_of(store), VERDICT)
    assert "127.0.0.1 was not told of the night of 2026-11-23: answered 403: ***" in caplog.text
    assert TOKEN not in caplog.text


def test_the_chat_hears_of_a_failure_where_the_store_is_what_failed(
    store: ObjectStore, chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("YANMO_WEBHOOK_URL", chat.url)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "nights").write_text("in the way")
    tell_end(run_of(store), failure())
    [(_, body)] = chat.got
    assert body["night"]["state"] == "failed" and body["page"] == ""  # type: ignore[index]


def test_hello_says_how_the_chat_answers(
    chat: Chat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hello = ["hello", "--store", str(tmp_path / "s"), "--channel", "nightly"]
    assert main(hello) == 78
    monkeypatch.setenv("YANMO_WEBHOOK_URL", chat.url)
    assert main(hello) == 0 and "127.0.0.1 took a line in the shape of json" in capsys.readouterr().out
    chat.answers = [says(410, TOKEN)]
    assert main(hello) == 75
    monkeypatch.setenv("YANMO_WEBHOOK_URL", f"nonsense {TOKEN}")
    assert main(hello) == 64
    said = capsys.readouterr()
    assert TOKEN not in said.out + said.err
