"""Nights on a real S3 server: a page in a browser, two writers at once, a server without conditions."""

from __future__ import annotations

import socket
import sys
import threading
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest
from servers.s3 import S3Server

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from conftest import VERDICT, failure, run_of, text_of

from yanmo.nights import index
from yanmo.nights.index import report_end, report_verdict, rows_shown
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store
from yanmo.store.s3.store import S3Store


@pytest.fixture
def place(s3_server: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    return f"s3://{s3_place}/{tmp_path.name}"


def test_an_address_signed_for_a_page_shows_it_in_a_browser(place: str) -> None:
    store = open_store(place)
    assert isinstance(store, S3Store)
    report_verdict(run_of(store), VERDICT)
    key = store._key("nights/nightly/index.html")
    with urlopen(
        store.bucket.client.presigned_get_object(store.bucket.name, key, timedelta(minutes=5))
    ) as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "晋升：少用 1.00 % 比特。" in answer.read().decode()


def test_a_store_that_is_away_ends_no_run_and_is_not_asked_for_as_long_as_others_ask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index, "STORE_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    report_verdict(run_of(open_store("s3://bucket/nights")), VERDICT)
    (said,) = [one.getMessage() for one in caplog.records if "is behind" in one.getMessage()]
    assert said.endswith("cancelled"), said


def test_two_runs_at_once_lose_no_night(place: str) -> None:
    stores = [open_store(place), open_store(place)]

    def tell(number: int, store: ObjectStore) -> None:
        for night in range(4):
            report_verdict(run_of(store, f"run-{number}-{night}"), VERDICT)
            report_end(run_of(store, f"bad-{number}-{night}"), failure())

    threads = [threading.Thread(target=tell, args=each) for each in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = rows_shown(stores[0], "nightly")
    assert len(rows) == 16 and {row.state for row in rows} == {"promoted", "failed"}
    page = text_of(stores[0], "nights/nightly/index.html")
    assert all(row.run_id in page for row in rows)
