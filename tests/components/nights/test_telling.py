"""What a store shows of its nights: by many writers, after kills, with hostile texts."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from selection import few

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from conftest import VERDICT, end_of, failure, run_of, text_of

from yanmo.nights.lists import MOST_A_MONTH, NEWEST, read_index, read_month, rows_in
from yanmo.nights.places import is_of_nights
from yanmo.nights.publishing import rows_shown
from yanmo.nights.record import read_record
from yanmo.nights.telling import tell_begin, tell_end, tell_verdict
from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store


def objects(store: ObjectStore) -> list[str]:
    return [info.name for info in store.list("nights")]


def test_a_night_is_shown_from_its_begin_to_its_verdict(store: ObjectStore) -> None:
    run = run_of(store)
    tell_end(run, end_of("resolve"), by_chat=False)
    assert [(row.name, row.state) for row in rows_shown(store, "nightly")] == [("2026-11-23-run-1", "begun")]
    tell_begin(run, end_of("train", "working", key="0" * 64, cost={}))
    tell_end(run, end_of("train", survived=2, cost={"seconds": 100.0, "gpu_hours": 0.5}))
    tell_verdict(
        run, VERDICT, lambda night: f'<meta name="yanmo-serial" content="{night["serial"]}"><p>report'
    )
    row = rows_shown(store, "nightly")[0]
    assert (row.state, row.bits, row.survived, row.verse) == (
        "promoted",
        8.102,
        2,
        "同遊南北登城\n鳥居多應在",
    )
    assert row.cost == {"seconds": 160.0, "cpu_seconds": 100.0, "gpu_hours": 0.5}
    assert text_of(store, "nights/nightly/2026-11-23-run-1.html").endswith("<p>report")
    index = text_of(store, "nights/nightly/index.html")
    for shown in (
        "Promoted: 1.00 % fewer bits.",
        "晋升：少用 1.00 % 比特。",
        "8.102",
        "同遊南北登城",
        "0.50",
    ):
        assert shown in index
    assert 'href="2026-11-23-run-1.html"' in index and 'href="2026-11.html"' in index
    assert 'href="nightly/index.html"' in text_of(store, "nights/index.html")
    assert all(map(is_of_nights, objects(store))) and len(objects(store)) == 9


@pytest.mark.parametrize(("state", "seal"), [("failed", "败"), ("paused", "歇")])
def test_a_night_without_a_verdict_has_a_page_that_says_why(
    store: ObjectStore, state: str, seal: str
) -> None:
    end = (
        failure()
        if state == "failed"
        else end_of(state="paused", sentence=failure("its hours are over").sentence)
    )
    tell_end(run_of(store), end)
    page = text_of(store, "nights/nightly/2026-11-23-run-1.html")
    assert seal in page and end.sentence.en in page and end.sentence.zh in page
    assert rows_shown(store, "nightly")[0].state == state


def test_a_run_that_is_tried_again_is_failed_no_more(store: ObjectStore) -> None:
    run = run_of(store)
    tell_end(run, failure())
    tell_end(run, end_of("train", survived=1))
    assert rows_shown(store, "nightly")[0].state == "begun"
    tell_verdict(run, VERDICT)
    row = rows_shown(store, "nightly")[0]
    assert (row.state, row.survived, row.cost["seconds"]) == ("promoted", 1, 120.0)


def test_the_same_said_again_writes_nothing(store: ObjectStore) -> None:
    run = run_of(store)
    tell_verdict(run, VERDICT)
    before = {name: store.read(name)[1] for name in objects(store)}
    tell_verdict(run, VERDICT)
    assert {name: store.read(name)[1] for name in objects(store)} == before


def _tell_many(root: str, writer: int, nights: int) -> None:
    store = open_store(root)
    for night in range(nights):
        run = run_of(store, f"w{writer}-{night}", f"channel-{writer % 2}", f"2026-1{night % 2 + 1}-2{writer}")
        tell_end(run, end_of("resolve"), by_chat=False)
        tell_verdict(run, VERDICT) if night % 2 else tell_end(run, failure())


def test_two_channels_and_many_runs_at_once_lose_no_night(tmp_path: Path) -> None:
    root, context = str(tmp_path / "store"), multiprocessing.get_context("spawn")
    writers = [context.Process(target=_tell_many, args=(root, number, 6)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    store = open_store(root)
    for channel in (0, 1):
        index = read_index(store, f"channel-{channel}")
        names = {row.run_id for row in rows_in(index)}
        assert names == {f"w{writer}-{night}" for writer in (channel, channel + 2) for night in range(6)}
        assert index is not None and sum(month["nights"] for month in index["months"].values()) == 12
        for month in ("2026-11", "2026-12"):
            states = [row.state for row in rows_in(read_month(store, f"channel-{channel}", month))]
            assert states.count("promoted") + states.count("failed") == 6
        page = text_of(store, f"nights/channel-{channel}/index.html")
        assert f'content="{index["serial"]}"' in page and all(f"{name}.html" in page for name in names)
        feed = text_of(store, f"nights/channel-{channel}/feed.xml")
        assert f"yanmo-serial {index['serial']} " in feed
    assert text_of(store, "nights/index.html").count("/index.html") == 2


KILLED = """
import os, signal, sys
sys.path.insert(0, {here!r})
from conftest import VERDICT, end_of, run_of
from yanmo.nights.telling import tell_end, tell_verdict
from yanmo.store.file_store import FileStore
from pathlib import Path

class Killed(FileStore):
    left = {after}
    def create(self, name, data):
        self.die(name)
        return super().create(name, data)
    def replace(self, name, data, version):
        self.die(name)
        return super().replace(name, data, version)
    def die(self, name):
        Killed.left -= 1
        if Killed.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

run = run_of(Killed(Path({root!r})))
tell_end(run, end_of("resolve"), by_chat=False)
tell_verdict(run, VERDICT, lambda night: f'<meta name="yanmo-serial" content="{{night["serial"]}}"><p>report')
"""


def test_a_kill_before_any_write_is_mended_by_the_next_writer(tmp_path: Path) -> None:
    """kill -9 before the first write, the second, ...: nothing is torn, the same command makes it whole.

    In `make test` before the first, two that the draw chooses, and after the last.
    """
    ends = set()
    for after in (0, *few(range(1, 17), "telling", 2), 17):
        root = tmp_path / f"store-{after}"
        code = KILLED.format(here=str(Path(__file__).parent), after=after, root=str(root))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        ends.add(done.returncode)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        store = open_store(str(root))
        tell_verdict(run_of(store, "run-2"), VERDICT)  # another run of the channel comes by
        whole = subprocess.run(
            [sys.executable, "-c", code.replace(f"left = {after}", "left = 1000")],
            capture_output=True,
            check=False,
        )
        assert whole.returncode == 0
        rows = rows_shown(store, "nightly")
        assert {(row.run_id, row.state) for row in rows} == {("run-1", "promoted"), ("run-2", "promoted")}
        index = read_index(store, "nightly")
        assert index is not None and f'content="{index["serial"]}"' in text_of(
            store, "nights/nightly/index.html"
        )
        assert text_of(store, "nights/nightly/2026-11-23-run-1.html").endswith("<p>report")
    assert ends == {0, -signal.SIGKILL}, "writes were met, and the whole of it as well"


def test_an_older_page_never_comes_back(store: ObjectStore) -> None:
    from yanmo.nights.changing import put_page, serial_of

    for serial in (2, 5, 3, 5):
        text = f'<meta name="yanmo-serial" content="{serial}">'
        put_page(store, "nights/a/index.html", serial, text.__str__)
    assert serial_of(store.read("nights/a/index.html")[0]) == 5


def test_ten_years_of_nights_leave_the_index_as_it_is(store: ObjectStore) -> None:
    sizes = []
    for year in (2026, 2031, 2036):
        for month in range(1, 13):
            for day in range(1, 5):
                date = f"{year}-{month:02d}-{day:02d}"
                tell_verdict(run_of(store, f"run-{date}", date=date), VERDICT)
        sizes.append(store.stat("nights/nightly/index.json").bytes)
        assert len(rows_shown(store, "nightly")) == NEWEST < MOST_A_MONTH
    assert sizes[2] < sizes[0] * 1.25, "the months alone grow"
    assert len(rows_in(read_month(store, "nightly", "2026-03"))) == 4
    assert text_of(store, "nights/nightly/index.html").count("<h3>") == 3


class _Scripts(HTMLParser):
    """The elements and attributes of a page that could run or load something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "img", "object", "svg", "form", "base"):
            self.found.append(tag)
        self.found += [name for name, _ in attrs if name.startswith("on")]
        self.found += [v or "" for name, v in attrs if name == "href" and (v or "").startswith("javascript")]


HOSTILE = (
    "</title></p><script>alert(1)</script><img src=x onerror=alert(2)>\"' {{7*7}} <!-- ]]> \u202e\x00&lt;"
)


def test_hostile_texts_are_text(store: ObjectStore) -> None:
    run = run_of(store, HOSTILE)
    tell_end(run, failure(HOSTILE))
    tell_verdict(
        run_of(store, "b"),
        {**VERDICT, "verse": HOSTILE, "genre": HOSTILE, "sentence": {"en": HOSTILE, "zh": HOSTILE}},
    )
    pages = [name for name in objects(store) if name.endswith(".html")]
    assert len(pages) == 5
    for name in pages:
        page, seen = text_of(store, name), _Scripts()
        seen.feed(page)
        assert seen.found in ([], ["script"]), name  # the page's own
        assert (
            "alert(1)</script>" not in page
            and "\u202e" not in page
            and "49" not in page.split("</style>")[1][:0]
        )
    assert "&lt;script&gt;alert(1)" in text_of(store, "nights/nightly/index.html")


def test_a_store_that_cannot_be_written_is_a_warning(
    store: ObjectStore, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "nights").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        tell_end(run_of(store), failure())
        tell_verdict(run_of(store), VERDICT)
    assert caplog.text.count("the pages of nights of channel nightly are behind") == 2


@pytest.mark.parametrize("name", ["runs/run-1.json", "index.json", "2026-11.json"])
@pytest.mark.parametrize("data", [b"", b"{}", b'{"schema": "yanmo.nights/9"}', b"\xff" * 100])
def test_a_damaged_document_is_named_and_left(
    store: ObjectStore, caplog: pytest.LogCaptureFixture, name: str, data: bytes
) -> None:
    store.create(f"nights/nightly/{name}", data)
    with caplog.at_level(logging.WARNING):
        tell_verdict(run_of(store), VERDICT)
    assert name in caplog.text and store.read(f"nights/nightly/{name}")[0] == data


def test_a_full_disk_tears_nothing(tmp_path: Path) -> None:
    """A limit of a file's size stands for the disk: each write of more ends with EFBIG."""
    root = tmp_path / "store"
    store = open_store(str(root))
    tell_end(run_of(store), end_of("resolve"), by_chat=False)
    before = {info.name: store.read(info.name)[0] for info in store.list("nights")}
    code = KILLED.format(here=str(Path(__file__).parent), after=1000, root=str(root))
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n" + code
    ignored = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + limited
    done = subprocess.run([sys.executable, "-c", ignored], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "are behind" in done.stderr + done.stdout
    assert {info.name: store.read(info.name)[0] for info in store.list("nights")} == before
    record = read_record(store, "nightly", "run-1")
    assert record is not None and record["state"] == "begun"
    tell_verdict(run_of(store), VERDICT)
    assert rows_shown(store, "nightly")[0].state == "promoted"
    assert os.path.exists(root)
