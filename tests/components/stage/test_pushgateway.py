"""Final figures at a Pushgateway, a real one: what stays, what goes, and what its faults may cost."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import pytest
import toy_stage
from servers.pushgateway import PASSWORD, USER, Pushgateway, absent, pushgateway

from yanmo.store.file_store import FileStore

TESTS = Path(__file__).parents[2]
Run = Callable[..., int]
pytestmark = pytest.mark.skipif(bool(absent()), reason=absent())
OF_A_SUCCESS = {
    *(
        "yanmo_stage_exit_code",
        "yanmo_stage_end_timestamp_seconds",
        "yanmo_stage_last_success_timestamp_seconds",
    ),
    *("yanmo_toy_duration_seconds", "yanmo_toy_cpu_seconds", "yanmo_stage_outputs_total"),
    "yanmo_toy_documents_total",
}


@pytest.fixture(autouse=True)
def here_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Pushgateway]:
    with pushgateway(tmp_path / "pushgateway") as running:
        yield running


def names(gateway: Pushgateway) -> set[str]:
    return {name for name, _ in gateway.held()} - {"yanmo_toy_energy_joules"}


def test_final_figures_stay_under_stage_and_channel(toy: Run, gateway: Pushgateway) -> None:
    before = time.time()
    assert toy(f"--pushgateway={gateway.address}", "--channel=nightly", "--run-id=run-7") == 0
    assert names(gateway) == OF_A_SUCCESS
    labels = {"job": "yanmo", "stage": "toy", "channel": "nightly"}
    assert all(labels.items() <= dict(has).items() for _, has in gateway.held())
    assert gateway.value("yanmo_toy_documents_total") == 1
    assert gateway.value("yanmo_stage_outputs_total", part="toy", result="made") == 1
    assert before < (gateway.value("yanmo_stage_last_success_timestamp_seconds") or 0) < time.time()
    assert "run-7" not in gateway.text(), "a series for each run would be without end"


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool")
def test_promtool_finds_nothing_wrong_with_what_is_pushed(toy: Run, gateway: Pushgateway) -> None:
    toy(f"--pushgateway={gateway.address}")
    shown = gateway.text()
    own = "".join(line for line in shown.splitlines(keepends=True) if "yanmo_" in line)
    done = subprocess.run(["promtool", "check", "metrics"], input=own, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "yanmo_toy_documents_total" in own


def test_the_next_run_replaces_the_figures(toy: Run, gateway: Pushgateway) -> None:
    flags = (f"--pushgateway={gateway.address}", "--force")
    toy(*flags)
    first = gateway.held()
    toy(*flags, "--text=another")
    second = gateway.held()
    assert first.keys() == second.keys()
    assert first != second


def test_a_failure_leaves_the_last_success_readable(toy: Run, gateway: Pushgateway) -> None:
    toy(f"--pushgateway={gateway.address}")
    good = gateway.held()
    assert toy(f"--pushgateway={gateway.address}", "--text=other", "--end=data") == 65
    assert gateway.value("yanmo_stage_exit_code") == 65
    ended = gateway.value("yanmo_stage_end_timestamp_seconds")
    success = gateway.value("yanmo_stage_last_success_timestamp_seconds")
    assert ended and success and ended > success
    for name in OF_A_SUCCESS - {"yanmo_stage_exit_code", "yanmo_stage_end_timestamp_seconds"}:
        assert [v for (n, _), v in good.items() if n == name] == [
            v for (n, _), v in gateway.held().items() if n == name
        ]


@pytest.mark.parametrize("end", ["pause", "skip"])
def test_a_run_that_hands_nothing_over_is_no_success(toy: Run, gateway: Pushgateway, end: str) -> None:
    assert toy(f"--pushgateway={gateway.address}", f"--end={end}") == 0
    assert names(gateway) == {"yanmo_stage_exit_code", "yanmo_stage_end_timestamp_seconds"}


def test_a_run_that_finds_its_output_shows_what_the_output_holds(toy: Run, gateway: Pushgateway) -> None:
    toy()
    assert toy(f"--pushgateway={gateway.address}") == 0
    assert gateway.value("yanmo_toy_documents_total") == 1
    assert gateway.value("yanmo_stage_outputs_total", part="toy", result="found") == 1
    assert gateway.value("yanmo_toy_cpu_seconds") is None, "that was another run's"


def test_the_other_ranks_of_a_training_push_nothing(
    toy: Run, gateway: Pushgateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert toy(f"--pushgateway={gateway.address}") == 0
    assert gateway.held() == {}


def test_runs_that_end_together_leave_one_set(gateway: Pushgateway, store: FileStore) -> None:
    runs = [_started(store, f"--pushgateway={gateway.address}", f"--text=poem {n}") for n in range(4)]
    assert [run.wait() for run in runs] == [0] * 4
    assert names(gateway) == OF_A_SUCCESS
    assert gateway.value("yanmo_toy_documents_total") == 1


def _started(store: FileStore, *flags: str) -> subprocess.Popen[str]:
    paths = [str(TESTS.parent / "components"), str(TESTS / "components"), str(TESTS)]
    return subprocess.Popen(
        [sys.executable, toy_stage.__file__, f"--store={store.root}", *flags],
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
        text=True,
    )


# Secrets.


def test_a_password_comes_from_the_environment_and_is_never_said(
    toy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pushgateway(tmp_path / "closed", password=True) as closed:
        flags = (f"--pushgateway={closed.address}", "--log-level=debug")
        assert toy(*flags) == 0
        assert "Pushgateway: the final figures of this run are not there: it answered 401" in caplog.text
        assert closed.held() == {}
        monkeypatch.setenv("YANMO_PUSHGATEWAY_USERNAME", USER)
        monkeypatch.setenv("YANMO_PUSHGATEWAY_PASSWORD", "wrong " + PASSWORD)
        assert toy(*flags) == 0 and closed.held() == {}
        monkeypatch.setenv("YANMO_PUSHGATEWAY_PASSWORD", PASSWORD)
        assert toy(*flags) == 0
        assert closed.value("yanmo_stage_exit_code") == 0
    assert PASSWORD not in caplog.text


def test_address_and_password_may_lie_in_the_mounted_secret(
    toy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(secret))
    with pushgateway(tmp_path / "closed", password=True) as closed:
        given = {"url": closed.address, "username": USER, "password": PASSWORD}
        for name, value in given.items():
            (secret / f"pushgateway_{name}").write_text(value + "\n", encoding="utf-8")
        assert toy() == 0
        assert closed.value("yanmo_stage_exit_code") == 0


@pytest.mark.parametrize("content", ["https://me:hush@gateway:9091", "gateway:9091", "\udcff"])
def test_a_wrong_secret_is_warned_of_and_not_said(
    toy: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    (tmp_path / "pushgateway_url").write_bytes(content.encode("utf-8", "surrogateescape"))
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(tmp_path))
    assert toy() == 0
    assert caplog.text.count("Pushgateway: ") == 1
    assert "hush" not in caplog.text


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("http://me:hush@gateway:9091", "without user, password and query"),
        ("http://hush@gateway:9091", "without user, password and query"),
        ("gateway:9091", "expected http(s)://host[:port]"),
        ("ftp://gateway", "expected http(s)://host[:port]"),
        ("http://", "expected http(s)://host[:port]"),
        ("http://gateway:port", "expected http(s)://host[:port]"),
        ("http://gateway:0", "expected http(s)://host[:port]"),
        ("http://gateway/?token=hush", "without user, password and query"),
        ("http://gate way", "expected http(s)://host[:port]"),
        ("http://[::1", "expected http(s)://host[:port]"),
    ],
)
def test_an_address_that_cannot_be_is_refused_at_once(
    toy: Run, caplog: pytest.LogCaptureFixture, address: str, says: str
) -> None:
    assert toy(f"--pushgateway={address}") == 64
    assert says in caplog.text
    assert "hush" not in caplog.text


# A Pushgateway that is not well.


@pytest.fixture
def sick(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that answers each connection with these bytes, then holds it."""
    ended, server = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def hold(connection: socket.socket, answer: Callable[[], Iterator[bytes]]) -> None:
        with connection:
            for part in answer():
                if ended.wait(0.05):
                    return
                try:
                    connection.sendall(part)
                except OSError:
                    return

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=hold, args=(connection, request.param), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    ended.set()
    server.close()


def says(text: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([text])


def hangs() -> Iterator[bytes]:
    while True:
        yield b""


def trickles() -> Iterator[bytes]:
    """Some of a header again and again: no wait for one part of the answer is ever over."""
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        yield b"x"


def never_ends() -> Iterator[bytes]:
    yield b"HTTP/1.1 500 no\r\nContent-Length: 1000000000\r\n\r\n"
    while True:
        yield b"no " * 1000


ILL = {
    "an error": (
        says(b"HTTP/1.1 500 Sorry\r\nContent-Length: 10\r\n\r\nno\x1b[2J way"),
        "it answered 500 no[2J way",
    ),
    "garbage": (says(b"\x00\xff\xfe what?\r\n\r\n"), "what?"),
    "nothing": (says(b""), "onnection"),
    "another place": (says(b"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\n\r\n"), "it answered 302"),
    "no answer": (hangs, "time"),
    "a slow answer": (trickles, "no answer in time"),
    "an endless answer": (never_ends, "it answered 500 no no"),
}


@pytest.mark.parametrize(("end", "code"), [("done", 0), ("data", 65)], ids=["done", "failed"])
@pytest.mark.parametrize(("sick", "why"), ILL.values(), ids=ILL, indirect=["sick"])
def test_what_is_wrong_with_it_is_one_warning(
    toy: Run, caplog: pytest.LogCaptureFixture, sick: str, why: str, end: str, code: int
) -> None:
    began = time.monotonic()
    assert toy(f"--pushgateway={sick}", f"--end={end}") == code
    assert time.monotonic() - began < 20, "five seconds of it are the Pushgateway's"
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 1 and warned[0].startswith("Pushgateway: "), warned
    assert why in warned[0], warned
    assert "\x1b" not in warned[0]


def test_one_that_is_down_is_one_warning(toy: Run, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert toy(f"--pushgateway=http://127.0.0.1:{port}") == 0
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "Pushgateway: the final figures of this run are not there: Connection refused"
    ]


@pytest.mark.parametrize("sick", [hangs], indirect=True)
def test_a_stage_that_fails_keeps_its_exit_code(toy: Run, sick: str) -> None:
    assert toy(f"--pushgateway={sick}", "--end=bug") == 70


def test_what_the_gateway_finds_wrong_is_said(
    toy: Run, gateway: Pushgateway, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Another job has pushed a metric of that name as another kind."""
    text = "# TYPE yanmo_stage_exit_code counter\nyanmo_stage_exit_code 1\n"
    place = f"{gateway.address}/metrics/job/other"
    build_opener(ProxyHandler({})).open(Request(place, data=text.encode(), method="PUT")).close()
    assert toy(f"--pushgateway={gateway.address}") == 0
    assert "it answered 400" in caplog.text and "inconsistent" in caplog.text
