"""`yanmo status --serve` as a process, and what it shows while the store is away or frozen."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from urllib.request import ProxyHandler, build_opener
from zoneinfo import ZoneInfo

import pytest

from yanmo.common.errors import UsageError
from yanmo.promote.metrics import OUTCOMES as of_promote
from yanmo.stage.measured import Measured
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import Reference
from yanmo.store.pointers import move_pointer
from yanmo_pipelines.cluster.status.serving.look import Watcher
from yanmo_pipelines.cluster.status.serving.metrics import METRICS, OUTCOMES
from yanmo_pipelines.cluster.status.serving.options import ServeOptions
from yanmo_pipelines.cluster.status.serving.serve import Status


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    place, key = FileStore(tmp_path / "store"), "a" * 64
    reference = Reference(
        stage="train",
        key=key,
        manifest_uri=f"cas/train/{key}/MANIFEST.json",
        manifest_sha256=key,
        content_digest=key,
    )
    move_pointer(place, "main", "train", reference)
    return place


class Server:
    """A process that serves."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "yanmo_pipelines.cluster.status", "--serve", "--serve-port=0", *flags],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr
        for line in self.process.stderr:
            if found := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise AssertionError(self.process.wait())

    def get(self) -> str:
        url = f"http://127.0.0.1:{self.port}/metrics"
        with build_opener(ProxyHandler({})).open(url, timeout=60) as answer:
            return str(answer.read().decode())

    def wait_for(self, is_there: Callable[[str], object]) -> str:
        while not is_there(text := self.get()):
            assert self.process.poll() is None
            time.sleep(0.05)
        return text


@pytest.fixture
def server(store: FileStore) -> Iterator[Server]:
    found = Server(f"--store={store.root}", "--refresh-seconds=0.1", "--cron=* * * * *")
    yield found
    found.process.kill()
    found.process.wait()


def test_a_store_that_goes_and_comes_back_is_said_at_once_and_ages_grow_meanwhile(
    server: Server, store: FileStore
) -> None:
    text = server.wait_for(lambda text: "yanmo_status_store_up 1.0" in text)
    assert 'yanmo_work_left{stage="train"} 0.0' in text
    age = 'yanmo_channel_last_success_age_seconds{channel="main",stage="train"} '
    first = float(text.partition(age)[2].split()[0])
    away = store.root.rename(store.root.with_name("away"))
    text = server.wait_for(lambda text: "yanmo_status_store_up 0.0" in text)
    assert "yanmo_work_left" not in text, "what ran then says nothing of now"
    assert float(text.partition(age)[2].split()[0]) > first
    away.rename(store.root)
    text = server.wait_for(lambda text: "yanmo_status_store_up 1.0" in text)
    assert 'yanmo_work_left{stage="train"} 0.0' in text
    assert "yanmo_channel_nights" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_well_when_it_is_asked_to(server: Server, number: signal.Signals) -> None:
    server.get()
    server.process.send_signal(number)
    assert server.process.wait(60) == 0


def test_a_port_that_is_taken_is_refused(store: FileStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "yanmo_pipelines.cluster.status", "--serve"),
                *(f"--store={store.root}", f"--serve-port={port}"),
            ],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 78 and f"cannot serve /metrics on port {port}: " in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--cron=0 21 * *"], "--cron '0 21 * *': expected minute"),
        (["--timezone=Mars/Olympus"], "--timezone 'Mars/Olympus'"),
        (["--refresh-seconds=0"], "--refresh-seconds"),
        (["--night-stage=bake"], "--night-stage"),
    ],
)
def test_wrong_options_are_refused(store: FileStore, flags: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "yanmo_pipelines.cluster.status", "--serve", f"--store={store.root}", *flags],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 64 and words in done.stderr


def test_many_scrapers_are_all_answered(server: Server) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: server.get(), range(400)))
    assert all("yanmo_status_store_up" in text for text in found)


def test_a_look_that_hangs_is_a_store_that_is_not_up(store: FileStore) -> None:
    """No error comes from a server that never answers: only time tells."""
    now = [1000.0]
    status = Status({}, refresh_seconds=30, clock=lambda: now[0])
    measured = Measured("status", METRICS)
    status.saw(Watcher(store).look(), 0.1)
    for later, is_up in ((0.0, 1.0), (99.0, 1.0), (101.0, 0.0)):
        now[0] = 1000.0 + later
        status.show(measured)
        assert measured.value("store_up", room="status") == is_up
        assert measured.value("look_age_seconds", room="status") == pytest.approx(later)
        assert (measured.value("left", room="work", stage="train") is not None) == (is_up == 1.0)


def test_nights_of_every_channel_of_a_file_of_schedules(store: FileStore, tmp_path: Path) -> None:
    """The file of `yanmo schedule`: two channels, one with two schedules, and one that is suspended."""
    path = tmp_path / "schedules.yaml"
    path.write_text(
        "timezone: Asia/Shanghai\nschedules:\n"
        "  a: {cron: '0 21 * * 1-5', channel: nightly}\n  b: {cron: '0 9 * * 0,6', channel: nightly}\n"
        "  c: {cron: '30 1 * * *', channel: other}\n  d: {cron: '0 2 * * *', channel: off, suspend: true}\n",
        encoding="utf-8",
    )
    plans = ServeOptions(schedules=str(path)).plans()
    status, measured = Status(plans, 30), Measured("status", METRICS)
    status.saw(Watcher(store).look(), 0.1)
    status.show(measured)
    due = {c: measured.value("next_timestamp_seconds", room="night", channel=c) for c in plans}
    assert set(due) == {"nightly", "other"}
    at = datetime.fromtimestamp(due["nightly"] or 0, ZoneInfo("Asia/Shanghai"))
    assert at.hour == (21 if at.isoweekday() < 6 else 9)
    assert list(ServeOptions(cron="0 21 * * *").plans()) == ["main"]
    with pytest.raises(ValueError, match="contradict"):
        ServeOptions(cron="0 21 * * *", schedules=str(path))
    with pytest.raises(UsageError, match="no such file"):
        ServeOptions(schedules=str(tmp_path / "none")).plans()


def test_outcomes_are_those_of_the_verdict() -> None:
    assert of_promote == OUTCOMES


def test_before_the_first_look_it_says_that_it_has_seen_nothing() -> None:
    status, measured = Status({}, 30), Measured("status", METRICS)
    status.show(measured)
    text = measured.text()
    assert "yanmo_status_store_up 0.0" in text and "yanmo_channel" not in text
