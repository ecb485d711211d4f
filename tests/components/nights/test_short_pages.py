"""A page that became short: it says what is left, stays short, and gives way to whoever says more."""

from __future__ import annotations

import multiprocessing
import random
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from conftest import VERDICT, end_of, failure, run_of, text_of

from yanmo.nights.changing import Values, change, serial_of
from yanmo.nights.night import STATES
from yanmo.nights.places import is_of_nights, record_name
from yanmo.nights.publishing import publish
from yanmo.nights.record import SCHEMA, read_record
from yanmo.nights.short_pages import MOST_BYTES, is_short, marked, short_page, shorten
from yanmo.nights.telling import tell_end, tell_verdict
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store

PAGE, RECORD = "nights/nightly/2026-11-23-run-1.html", record_name("nightly", "run-1")
REPORT = "<p>the whole report</p>" + "诗" * 4000


def whole(night: Values) -> str:
    return f'<meta name="yanmo-serial" content="{night["serial"]}"><i>{night["verdict"]["state"]}</i>{REPORT}'


def judge(store: ObjectStore, state: str = "not promoted", run_id: str = "run-1") -> None:
    tell_verdict(run_of(store, run_id), {**VERDICT, "state": state}, whole)


def record_of(store: ObjectStore, run_id: str = "run-1") -> Values:
    record = read_record(store, "nightly", run_id)
    assert record is not None
    return record


def shorten_now(store: ObjectStore) -> bool:
    return shorten(store, RECORD, record_of(store)["serial"])


class Links(HTMLParser):
    """What a browser finds: links, and whether anything is loaded or run."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


@pytest.fixture
def judged(store: ObjectStore) -> ObjectStore:
    tell_end(run_of(store), end_of("train", key="a" * 64, survived=1))
    judge(store)
    return store


def test_it_says_what_is_known_and_leads_back_to_index_and_month(judged: ObjectStore) -> None:
    lists = {i.name: judged.read(i.name)[0] for i in judged.list("nights") if i.name not in (PAGE, RECORD)}
    assert shorten_now(judged)
    page = text_of(judged, PAGE)
    assert "the whole report" not in page and 1500 < len(page.encode()) < 3000
    said = ["2026-11-23: not promoted", "未晋升", "Promoted: 1.00 % fewer bits.", "晋升：少用 1.00 % 比特。"]
    said += ["8.102", "+1.00 %", "1 min 00 s", "train/aaaaaaaaaaaa", "同遊南北登城<br>鳥居多應在", RECORD]
    assert [words for words in said if words not in page] == []
    links = Links()
    links.feed(page)
    assert links.links == ["index.html", "2026-11.html"] and "script" not in links.tags
    assert {name: judged.read(name)[0] for name in lists} == lists, "index, month and feed are as before"
    assert all(is_of_nights(info.name) for info in judged.list("nights"))


def test_a_repeat_writes_nothing_and_a_page_shown_again_stays_short(judged: ObjectStore) -> None:
    assert shorten_now(judged)
    before = {info.name: judged.read(info.name) for info in judged.list("nights")}
    assert shorten_now(judged)
    publish(judged, record_of(judged), whole)
    assert {name: judged.read(name) for name in before} == before


def test_a_page_without_a_verdict_comes_back_whole_when_its_run_goes_on(store: ObjectStore) -> None:
    tell_end(run_of(store), failure())
    assert shorten_now(store) and "缩短" in text_of(store, PAGE)
    tell_end(run_of(store), failure("no space left"))
    page = text_of(store, PAGE)
    assert "no space left" in page and "缩短" not in page and not is_short(record_of(store))


def test_what_was_decided_after_it_was_planned_is_not_touched(judged: ObjectStore) -> None:
    planned = record_of(judged)["serial"]
    judge(judged, "promoted")
    before = text_of(judged, PAGE)
    assert not shorten(judged, RECORD, planned)
    assert text_of(judged, PAGE) == before and not is_short(record_of(judged))


def test_a_night_that_was_taken_back_does_not_come_back(judged: ObjectStore) -> None:
    """`forget_missed` removes page and record, before the mark or after it."""
    serial = record_of(judged)["serial"]
    judged.delete(PAGE)
    assert not shorten(judged, RECORD, serial)
    judged.delete(RECORD)
    assert not shorten(judged, RECORD, serial)
    assert judged.stat(PAGE) is None and judged.stat(RECORD) is None


def test_a_mark_that_a_kill_left_alone_is_made_true_by_the_next_writer(judged: ObjectStore) -> None:
    change(judged, RECORD, SCHEMA, lambda values: {**values, "short": marked(values)["short"]})
    assert "the whole report" in text_of(judged, PAGE)
    publish(judged, record_of(judged))
    assert "the whole report" not in text_of(judged, PAGE)


def decide_late(uri: str, number: int) -> None:
    store = open_store(uri)
    time.sleep(random.Random(number).random() / 20)
    judge(store, "promoted")


def shorten_all_the_time(uri: str) -> None:
    store = open_store(uri)
    end = time.monotonic() + 0.15
    while time.monotonic() < end:
        shorten_now(store)


@pytest.mark.parametrize("number", range(8))
def test_a_late_decision_is_never_lost_to_one_who_makes_pages_short(tmp_path: Path, number: int) -> None:
    """Whatever the order, the page is of the record's last change, and says the decision."""
    uri = str(tmp_path / "store")
    store = open_store(uri)
    judge(store, "held")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=shorten_all_the_time, args=(uri,)) for _ in range(2)]
    processes.append(context.Process(target=decide_late, args=(uri, number)))
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    record, page = record_of(store), store.read(PAGE)[0]
    assert record["state"] == "promoted" and serial_of(page) == record["serial"]
    assert is_short(record) == (len(page) <= MOST_BYTES)
    assert (b"<i>promoted</i>" in page) or (b"2026-11-23: promoted" in page)


TEXT = st.text(max_size=2500) | st.sampled_from(
    ['"' * 2500, "&" * 2500, "𠀀" * 2500, "\u202e" * 900, "\ud800"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=st.lists(TEXT, min_size=6, max_size=6),
    state=st.sampled_from(STATES),
    numbers=st.lists(st.none() | st.floats(), min_size=4, max_size=4),
    keys=st.lists(st.tuples(st.sampled_from(["train", "evaluate"]), TEXT), max_size=40),
)
def test_it_is_small_and_whole_whatever_the_night_says(
    texts: list[str], state: str, numbers: list[float | None], keys: list[tuple[str, str]]
) -> None:
    english, chinese, verse, run, genre, currency = texts
    stages = {
        f"{n}": {"stage": s, "key": key, "state": "done", "cost": {}} for n, (s, key) in enumerate(keys)
    }
    record = {
        **{"channel": "c" * 100, "run_id": run[:200], "date": "2026-11-23", "serial": 10**14, "state": state},
        **{"began": "2026-11-23T13:00:00+00:00", "changed": "2026-11-23T13:00:00+00:00", "stages": stages},
        "prices": {"currency": currency, "cpu_hour": 1.0},
        "verdict": {
            **{"sentence": {"en": english, "zh": chinese}, "verse": verse, "genre": genre, "page": True},
            **{"bits": numbers[0], "gain": numbers[1], "cost": {"seconds": numbers[2], "kwh": numbers[3]}},
        },
    }
    page = short_page(marked(record)).encode("utf-8", "strict")
    assert len(page) <= MOST_BYTES
    assert serial_of(page) == 10**14 + 1
    links = Links()
    links.feed(page.decode())
    assert links.links == ["index.html", "2026-11.html"] and not {"script", "img"} & links.tags
