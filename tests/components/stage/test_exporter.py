"""What a stage measures, and how it is served: as a scrape sees it."""

import contextlib
import gzip
import json
import logging
import re
import shutil
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from yanmo.common import waiting
from yanmo.common.logs import Progress
from yanmo.stage import endpoint
from yanmo.stage.declaration import OTHER, Label, Metric
from yanmo.stage.exporter import Telemetry
from yanmo.stage.shared_metrics import REASONS, REQUESTS, declared
from yanmo.store import objects
from yanmo.store.s3.retry import ASKED

open_directly = build_opener(ProxyHandler({})).open
LOSS = Metric(name="loss", help="Loss", zh="损失")
BY_GENRE = Metric(
    name="bits",
    help="Bits",
    zh="比特",
    labels=(Label(name="genre", about="genre", zh="体裁", most=3),),
)
BY_PATH = Metric(
    name="rows", help="Rows", zh="行", kind="counter", labels=(Label(name="path", values=("a",)),)
)
OWN = (LOSS, BY_GENRE, BY_PATH)


def address(telemetry: Telemetry, path: str = "/metrics") -> str:
    return f"http://127.0.0.1:{telemetry.port}{path}"


def scrape(telemetry: Telemetry, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with open_directly(Request(address(telemetry), headers=named), timeout=10) as answer:
        return answer.read()


def test_metrics_are_served_without_a_look_up_of_the_machines_name(monkeypatch, capfd):
    def asked(*args):
        raise AssertionError(f"asks a name server for {args}")

    for name in ("getfqdn", "gethostbyaddr", "gethostbyname", "gethostbyname_ex"):
        monkeypatch.setattr(socket, name, asked)
    with Telemetry("train", OWN, run_id="night-7", port=0) as telemetry:
        telemetry.set("loss", 3.5)
        with ThreadPoolExecutor(4) as pool:
            bodies = [r.read().decode() for r in pool.map(open_directly, [address(telemetry)] * 8)]
    assert all("yanmo_train_loss 3.5" in body for body in bodies)
    assert 'run_id="night-7"' in bodies[0]
    assert capfd.readouterr() == ("", ""), "a scrape is nothing to tell"


def test_a_busy_port_is_replaced_by_a_free_one(caplog):
    with Telemetry("train", port=0) as first, Telemetry("train", port=first.port) as second:
        assert second.port not in (first.port, -1)
        assert "taking a free one" in caplog.text
        assert scrape(second)


def test_a_counter_is_there_before_its_first_event():
    """Else the first one is no increase, and an alert on `increase(...)` sleeps through it."""
    by_genre = Metric(name="documents", help="Documents", zh="文档", kind="counter", labels=BY_GENRE.labels)
    telemetry = Telemetry("train", (*OWN, by_genre))
    assert telemetry.value("rows", path="a") == 0
    assert telemetry.value("documents", genre="shi") is None, "nobody knows which there will be"
    telemetry.add("rows", path="a")
    telemetry.begin_again()
    assert telemetry.value("rows", path="a") == 0


@pytest.mark.parametrize("everywhere", [False, True])
def test_it_is_served_where_it_was_asked_for(everywhere):
    with Telemetry("train", port=0, everywhere=everywhere) as telemetry:
        assert scrape(telemetry)
        bound = telemetry.endpoint._server.server_address[0]
        assert bound in (("::", "0.0.0.0") if everywhere else ("127.0.0.1",))


def test_only_what_is_declared_can_be_set():
    telemetry = Telemetry("train", OWN)
    with pytest.raises(KeyError):
        telemetry.set("los", 1)
    with pytest.raises(KeyError):
        telemetry.set("loss", 1, genre="shi")
    with pytest.raises(KeyError):
        telemetry.set("bits", 1)


@given(st.text(max_size=300), st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_label_is_read_back_by_both_formats(run_id, genre):
    telemetry = Telemetry("train", OWN, run_id=run_id)
    telemetry.set("bits", 1.5, genre=genre)
    for read, encode in (
        (text_string_to_metric_families, lambda: telemetry.text()),
        (read_openmetrics, lambda: choose_encoder(OPEN)[0](telemetry.registry).decode()),
    ):
        samples = {s.name: s for f in read(encode()) for s in f.samples}
        assert samples["yanmo_train_bits"].value == 1.5
        shown = samples["yanmo_run_info"].labels["run_id"]
        expected = run_id[:120].encode("utf-8", "replace").decode()
        assert len(shown) == len(expected)
        assert all(a in (b, "?") for a, b in zip(shown, expected, strict=True))
        kept = [(a, b) for a, b in zip(shown, expected, strict=True) if b.isprintable() or b == "\n"]
        assert all(a == b for a, b in kept), "quotes, backslashes and line ends stay"


OPEN = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"


@given(st.text(max_size=60))
@settings(max_examples=50, deadline=None)
def test_a_byte_that_is_no_text_ends_no_scrape(text):
    telemetry = Telemetry("train", OWN, run_id="\udcff" + text + "\ud800")
    assert telemetry.text().count("yanmo_run_info{") == 1


@given(st.lists(st.text(max_size=5), max_size=40))
@settings(max_examples=50, deadline=None)
def test_series_are_bounded_whatever_the_data_say(genres):
    telemetry = Telemetry("train", OWN)
    for genre in genres:
        telemetry.set("bits", 1, genre=genre)
        telemetry.add("rows", path=genre)
    shown = [
        s.labels["genre"] for f in telemetry.families() if f.name == "yanmo_train_bits" for s in f.samples
    ]
    readable = {"".join(c if c.isprintable() or c == "\n" else "?" for c in genre) for genre in genres}
    assert len(shown) <= 3 + 1 and set(shown) - {OTHER} <= readable
    rows = [s for f in telemetry.families() if f.name == "yanmo_train_rows" for s in f.samples]
    assert {s.labels["path"] for s in rows} <= {"a", OTHER}
    assert sum(s.value for s in rows) == len(genres), "nothing is lost"


def test_what_lasts_survives_another_try_and_the_rest_does_not():
    lasting = Metric(name="restarts", help="Restarts", zh="重启", kind="counter", lasts=True)
    telemetry = Telemetry("train", (LOSS, lasting))
    telemetry.set("loss", 2)
    telemetry.add("restarts")
    telemetry.begin_again()
    assert telemetry.value("loss") is None and telemetry.value("restarts") == 1
    assert telemetry.value("tries", room="stage") == 2


def test_work_that_is_over_does_not_age():
    telemetry, name = Telemetry("curate"), "read, B"

    def age() -> float | None:
        telemetry.ask()
        return telemetry.value("work_age_seconds", room="stage")

    telemetry.begin_again()
    assert age() is None
    progress = Progress(logging.getLogger("test"), "read", 100, unit="B")
    progress.add(40)
    assert age() >= 0
    progress.end()  # the rest was there already
    assert age() is None and telemetry.value("work_done", room="stage", work=name) == 100
    Progress(logging.getLogger("test"), "read", 100, unit="B")
    assert age() >= 0
    telemetry.begin_again()  # that try ended with an error
    assert age() is None and telemetry.value("work", room="stage", work=name) is None


def test_a_run_has_one_info_whatever_becomes_known_later():
    telemetry = Telemetry("train", run_id="r")
    telemetry.info(key="0123")
    telemetry.info(model="4567", key="89")
    (line,) = [line for line in telemetry.text().splitlines() if line.startswith("yanmo_run_info{")]
    assert 'key="89"' in line and 'model="4567"' in line and 'run_id="r"' in line and line.endswith(" 1.0")


def test_a_source_that_fails_costs_only_its_own_metrics(caplog):
    telemetry = Telemetry("train", OWN)

    def fails():
        raise RuntimeError("no driver")

    telemetry.source(fails)
    telemetry.source(lambda: telemetry.set("loss", 4))
    assert all("yanmo_train_loss 4.0" in telemetry.text() for _ in range(3))
    assert caplog.text.count("no driver") == 1


def test_an_answer_is_packed_where_the_scraper_unpacks():
    with Telemetry("train", OWN, port=0) as telemetry:
        packed = scrape(telemetry, Accept_Encoding="gzip")
        assert b"yanmo_run_info" in gzip.decompress(packed)
        assert scrape(telemetry, Accept=OPEN).endswith(b"# EOF\n")


class TestBadScrapers:
    @pytest.mark.parametrize("begins", [b"", b"GET /metrics HT"])
    def test_scrapers_that_send_a_byte_now_and_then_keep_nobody_out(self, begins):
        """From more of them than there are places: a scrape is answered at once."""
        before, seconds = threading.active_count(), []
        with Telemetry("train", OWN, port=0) as telemetry:
            slow = [socket.create_connection(("127.0.0.1", telemetry.port)) for _ in range(60)]
            for _ in range(5):
                for one in slow:
                    with contextlib.suppress(OSError):  # it was cut
                        one.sendall(begins or b"a")
                began = time.monotonic()
                assert b"yanmo_run_info" in scrape(telemetry)
                seconds.append(time.monotonic() - began)
            assert threading.active_count() < before + 40
            for one in slow:
                one.close()
        assert min(seconds) < 5

    def test_a_connection_ends_however_busy_it_looks(self, monkeypatch):
        monkeypatch.setattr(endpoint, "_LONGEST_SECONDS", 0.5)
        with (
            Telemetry("train", OWN, port=0) as telemetry,
            socket.create_connection(("127.0.0.1", telemetry.port)) as one,
            pytest.raises(OSError),
        ):
            until = time.monotonic() + 60
            while time.monotonic() < until:
                one.sendall(b"a")
                time.sleep(0.05)

    def test_a_scraper_that_leaves_in_the_middle_is_no_news(self, capfd):
        with Telemetry("train", OWN, port=0) as telemetry:
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", telemetry.port)) as one:
                    one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            assert scrape(telemetry)
        assert capfd.readouterr().err == ""


class TestTheLastScrape:
    def test_it_is_waited_for_where_somebody_scrapes(self):
        bodies = []
        with Telemetry("toy", port=0, wait_seconds=60) as telemetry:
            bodies.append(scrape(telemetry).decode())
            telemetry.ended(0)

            def later():
                time.sleep(0.4)
                bodies.append(scrape(telemetry).decode())

            thread = threading.Thread(target=later)
            thread.start()
            began = time.monotonic()
        assert time.monotonic() - began < 50
        thread.join()
        assert "yanmo_stage_exit_code" not in bodies[0]
        assert "yanmo_stage_exit_code 0.0" in bodies[1] and 'state="done"} 1.0' in bodies[1]

    def test_nobody_is_waited_for_where_nobody_came(self):
        began = time.monotonic()
        with Telemetry("toy", port=0, wait_seconds=60):
            pass
        assert time.monotonic() - began < 30

    def test_a_scraper_that_has_stopped_coming_is_not_waited_for(self, monkeypatch):
        scrapes = endpoint._Scrapes()
        scrapes.asked()
        now = time.monotonic()
        scrapes.answered(now - 100)
        scrapes.answered(now - 90)
        assert scrapes.wait_for_another(60) is False
        assert time.monotonic() - now < 30

    def test_one_that_could_not_be_answered_for_some_seconds_is_waited_for(self):
        scrapes = endpoint._Scrapes()
        scrapes.asked()
        now = time.monotonic()
        scrapes.answered(now - 3.5)
        scrapes.answered(now - 3.0)
        later = threading.Timer(0.3, lambda: scrapes.answered(time.monotonic()))
        later.start()
        assert scrapes.wait_for_another(60) is True
        later.join()

    def test_one_that_is_due_soon_is_not_waited_for_any_longer(self, monkeypatch):
        monkeypatch.setattr(endpoint, "_LATE_SECONDS", 0.2)
        scrapes = endpoint._Scrapes()
        scrapes.asked()
        now = time.monotonic()
        scrapes.answered(now - 0.5)
        scrapes.answered(now - 0.1)
        assert scrapes.wait_for_another(60) is False
        assert time.monotonic() - now < 30

    def test_the_wait_is_bounded(self):
        scrapes = endpoint._Scrapes()
        scrapes.asked()
        scrapes.answered(time.monotonic())
        assert scrapes.wait_for_another(0.2) is False

    def test_a_failed_stage_says_so(self):
        with pytest.raises(OSError), Telemetry("toy", port=0) as telemetry:
            raise ConnectionError("away")
        assert telemetry.value("exit_code", room="stage") == 75
        assert telemetry.value("state", room="stage", state="failed") == 1


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool")
def test_promtool_finds_nothing_wrong():
    """But that bits are a size of data: here they are what a character tells, the field's own unit."""
    from yanmo_pipelines.stages import LANGUAGE_MODEL

    for stage in LANGUAGE_MODEL:
        telemetry = Telemetry(stage.name, stage.metrics, run_id='a "night"\nand \\more')
        for metric in telemetry._metrics.values():
            labels = {label.name: (label.values or ("诗",))[0] for label in metric.labels}
            if (metric.room, metric.name) != ("run", "info"):
                telemetry.set(metric.name, 1, room=metric.room, **labels)
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=telemetry.text(), capture_output=True, text=True
        )
        said = [line for line in (done.stdout + done.stderr).splitlines() if "bits_per_character" not in line]
        assert not said, stage.name
        shown = set(re.findall(r"^# TYPE (\S+)", telemetry.text(), re.M))
        assert shown >= {f for f, _ in declared(stage.name, stage.metrics)} - {"yanmo_stage_work_age_seconds"}


def test_labels_that_other_rooms_fill_have_their_values():
    assert waiting.REASONS == REASONS and objects.REQUEST_KINDS == REQUESTS
    assert {kind for kind, _ in ASKED.values()} == set(REQUESTS)
    sources = (Path(objects.__file__).parent / "s3").glob("*.py")
    first = {
        word for path in sources for word in re.findall(r'\.(?:retry|ask)\(\s*f?"(\w+) ', path.read_text())
    }
    assert first == set(ASKED), "the first word of each request says what it is counted as"


PROMETHEUS = """
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
  - job_name: yanmo
    static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.skipif(not shutil.which("prometheus"), reason="needs prometheus")
def test_a_real_prometheus_sees_the_run_and_its_end(tmp_path):
    port, name = free_port(), 'a "night"\nand \\more 夜'

    def ask(query: str) -> list[dict]:
        url = f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}"
        try:
            with open_directly(url, timeout=5) as answer:
                return json.load(answer)["data"]["result"]
        except OSError:
            return []

    def wait_for(query: str) -> list[dict]:
        end = time.monotonic() + 120
        while not (found := ask(query)):
            assert time.monotonic() < end, query
            time.sleep(0.1)
        return found

    with Telemetry("train", OWN, run_id=name, port=0, wait_seconds=60) as telemetry:
        telemetry.set("loss", 2.5)
        (tmp_path / "prometheus.yml").write_text(PROMETHEUS % telemetry.port)
        server = subprocess.Popen(
            [
                *("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert wait_for("up == 1")
            join = "yanmo_train_loss * on (instance) group_left (run_id) yanmo_run_info"
            (found,) = wait_for(join)
            assert found["metric"]["run_id"] == name and float(found["value"][1]) == 2.5
            telemetry.ended(75)
            telemetry.endpoint.wait_for_scrape(60)
            (found,) = wait_for("yanmo_stage_exit_code")
            assert found["value"][1] == "75"
        finally:
            server.terminate()
            server.wait()
