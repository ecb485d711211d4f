"""What who watches enters into the pages of nights: what never began, what died, what came late after all."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import ProxyHandler, build_opener
from zoneinfo import ZoneInfo

import pytest

from yanmo.common.errors import DataError
from yanmo.nights.changing import Values, change
from yanmo.nights.lists import read_index, rows_in
from yanmo.nights.night import Row, night_date
from yanmo.nights.places import record_name
from yanmo.nights.record import DONE, SCHEMA, WORKING, StageEnd
from yanmo.nights.settings import VARIABLES
from yanmo.nights.telling import Run, tell_begin, tell_end
from yanmo.store.file_store import FileStore
from yanmo.store.objects import ObjectStore
from yanmo_pipelines.cluster.schedules.cron import parse_cron
from yanmo_pipelines.cluster.status.serving.nights import Night, Plan
from yanmo_pipelines.cluster.status.serving.telling import NightTeller

SHANGHAI = ZoneInfo("Asia/Shanghai")
HOUR, DAY = 3600.0, 86400.0
PLAN = Plan(
    cron=parse_cron("0 21 * * *"), zone=SHANGHAI, seconds=11 * HOUR, begin_seconds=HOUR / 2, stage="promote"
)


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable, _ in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(tmp_path / "no-secret"))


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def last_due() -> float:
    """When the newest night was due that is over half an hour ago."""
    return PLAN.begins(time.time() - 2 * DAY, time.time() - HOUR)[-1]


def night(state: str, begin: float) -> Night:
    return Night(begin, begin + PLAN.seconds, state)


def tell(teller: NightTeller, *nights: Night, channels: tuple[str, ...] = (), channel: str = "main") -> None:
    teller.tell(channels, {channel: (PLAN, list(nights))}, time.time())


def rows(store: ObjectStore, channel: str = "main") -> list[Row]:
    return rows_in(read_index(store, channel))


def begins(store: ObjectStore, at: float, run_id: str = "run-1", channel: str = "main") -> None:
    """A run that began then, and whose training goes on."""
    run = Run(store=store, channel=channel, run_id=run_id, date=night_date(at, SHANGHAI), timezone="UTC")
    tell_end(run, StageEnd(task="resolve", state=DONE), by_chat=False)
    tell_begin(run, StageEnd(task="train", state=WORKING, key="ab" * 32))
    when = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")

    def older(values: Values) -> Values:
        stages = {task: {**stage, "at": when} for task, stage in values["stages"].items()}
        return {**values, "began": when, "stages": stages}

    change(store, record_name(channel, run_id), SCHEMA, older)
    tell_end(run, StageEnd(task="curate", state=DONE), by_chat=False)  # so the index says when it began


def test_a_night_that_never_began_is_entered_once_and_taken_back_when_it_begins(store: FileStore) -> None:
    teller, due = NightTeller(store), last_due()
    tell(teller, night("due", due))
    assert rows(store) == []
    tell(teller, night("missed", due))
    [row] = rows(store)
    assert (row.state, row.date) == ("missed", night_date(due, SHANGHAI))
    before = {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}
    tell(teller, night("missed", due))
    tell(NightTeller(store), night("missed", due)), "another process, or this one started again"
    assert {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()} == before
    tell(teller, night("begun", due))
    assert rows(store) == [] and not [i.name for i in store.list("nights") if "missed" in i.name]


@pytest.mark.parametrize("state", ["begun", "met", "paused", "failed"])
def test_one_that_another_process_called_missed_is_taken_back_too(store: FileStore, state: str) -> None:
    due = last_due()
    tell(NightTeller(store), night("missed", due))
    tell(NightTeller(store), night(state, due))
    assert rows(store) == []


def test_while_nobody_knows_nothing_is_entered_or_taken_back(store: FileStore) -> None:
    teller, due = NightTeller(store), last_due()
    tell(teller, night("unknown", due))
    assert rows(store) == []
    tell(teller, night("missed", due))
    tell(teller, night("unknown", due))
    assert [row.state for row in rows(store)] == ["missed"]


def test_a_run_that_began_in_its_hours_says_that_it_was_not_missed(store: FileStore) -> None:
    """Its pointers have not moved yet, and so the watcher has seen nothing of it."""
    due = last_due()
    begins(store, due + 60)
    tell(NightTeller(store), night("missed", due))
    assert [row.run_id for row in rows(store)] == ["run-1"]


@pytest.mark.parametrize("after", [-60, 11 * HOUR + 60])
def test_a_run_outside_of_its_hours_is_another_night(store: FileStore, after: float) -> None:
    due = last_due() - DAY
    begins(store, due + after)
    tell(NightTeller(store), night("missed", due))
    assert sorted(row.state for row in rows(store)).count("missed") == 1


def test_nights_of_more_than_six_days_ago_are_nobodys_news(store: FileStore) -> None:
    """Their runs may have been removed by gc: that is no reason to call them missed."""
    tell(NightTeller(store), night("missed", last_due() - 7 * DAY))
    assert not list(store.list("nights"))


def test_two_who_watch_at_once_enter_it_once(store: FileStore) -> None:
    due, script = last_due(), Path(__file__)
    command = [sys.executable, "-c", TELL_MISSED, str(script.parent), str(store.root), str(due)]
    for process in [subprocess.Popen(command) for _ in range(3)]:
        assert process.wait(120) == 0
    assert [row.state for row in rows(store)] == ["missed"]


TELL_MISSED = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import test_telling as t
from yanmo.store.file_store import FileStore
t.tell(t.NightTeller(FileStore(Path(sys.argv[2]))), t.night("missed", float(sys.argv[3])))
"""


def test_a_damaged_record_or_index_of_one_channel_hides_nothing_of_the_others(store: FileStore) -> None:
    due = last_due()
    for channel in ("a", "b", "main"):
        begins(store, due - HOUR, "run-1", channel)
        begins(store, due - HOUR, "run-2", channel)
    (store.root / "nights/a/index.json").write_text("{")
    (store.root / record_name("b", "run-2")).write_text('{"schema": "yanmo.night/1", "serial": 2}')
    teller = NightTeller(store)
    with pytest.raises(DataError, match=r"nights/a/index\.json: damaged"):
        tell(teller, night("missed", due), channels=("a", "b", "main"))
    assert sorted(row.state for row in rows(store, "b")) == ["begun", "failed"], "the one that can be read"
    assert sorted(row.state for row in rows(store)) == ["failed", "failed", "missed"]


class Watching:
    """`yanmo status --serve` as a process, with a night due each second."""

    def __init__(self, store: FileStore, *flags: str) -> None:
        command = [sys.executable, "-m", "yanmo_pipelines.cluster.status", "--serve", "--serve-port=0"]
        command += [f"--store={store.root}", "--refresh-seconds=0.2", "--cron=* * * * * *"]
        command += ["--night-seconds=1", "--begin-seconds=0.5", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        found = (re.search(r"at http://127\.0\.0\.1:(\d+)", line) for line in self.process.stderr)
        self.port = int(next(filter(None, found))[1])

    def metrics(self) -> str:
        url = f"http://127.0.0.1:{self.port}/metrics"
        with build_opener(ProxyHandler({})).open(url, timeout=60) as answer:
            return str(answer.read().decode())

    def until(self, is_so: Callable[[], object]) -> None:
        while not is_so():
            assert self.process.poll() is None
            time.sleep(0.1)


def test_a_process_that_watches_enters_them_by_itself_and_outlives_a_damaged_record(store: FileStore) -> None:
    begins(store, time.time() - DAY, "dead", "main")
    begins(store, time.time() - DAY, "damaged", "main")
    (store.root / record_name("main", "damaged")).write_text('{"schema": "yanmo.night/1", "serial": 2}')
    watching = Watching(store)
    try:
        watching.until(lambda: any(row.state == "missed" for row in rows(store)))
        watching.until(lambda: any(row.run_id == "dead" and row.state == "failed" for row in rows(store)))
        assert "yanmo_status_store_up 1.0" in watching.metrics()
    finally:
        watching.process.kill()
        watching.process.wait()


def test_one_that_only_watches_enters_nothing(store: FileStore) -> None:
    begins(store, time.time() - DAY, "dead", "main")
    before = {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}
    watching = Watching(store, "--tell-nights=false")
    try:
        missed = re.compile(r'^yanmo_channel_nights\{.*state="missed".*\} [1-9]', re.M)
        watching.until(lambda: missed.search(watching.metrics()))
    finally:
        watching.process.kill()
        watching.process.wait()
    assert {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()} == before
