"""What passes outside of a stage is waited out: the store, another run's lease, an end with 75."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import toy_stage
from servers.ceph import free_ports
from servers.outage import Kind, Outage
from servers.s3 import S3Server
from toy_outputs import wait_until

from yanmo.common import waiting
from yanmo.common.errors import DataError, LeaseLost, StorageError, WorkerLost
from yanmo.stage.failing import until_it_ends
from yanmo.stage.run import main
from yanmo.store.file_store import FileStore
from yanmo.store.opening import open_store
from yanmo.store.output import open_reference
from yanmo.store.pointers import read_pointer

TESTS = Path(__file__).parents[2]
ROOT = TESTS.parent
Start = Callable[..., "Started"]


class Started:
    """A toy stage in a process of its own."""

    def __init__(self, flags: list[str], environment: dict[str, str]) -> None:
        self.port = free_ports(1)[0]
        program = str(TESTS / "components/toy_stage.py")
        paths = [str(ROOT / "components"), str(TESTS / "components"), str(TESTS)]
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", program, f"--metrics-port={self.port}", *flags],
            env={**os.environ, **environment, "PYTHONPATH": ":".join(paths)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def waits_for(self, reason: str) -> bool:
        """Whether its metrics say that it waits for that now."""
        assert self.process.poll() is None, self.log()
        found = re.search(rf'^yanmo_toy_waiting_seconds{{reason="{reason}"}} (\S+)', self.metrics(), re.M)
        return bool(found and float(found[1]))

    def metrics(self) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:  # it does not serve yet
            return ""

    def log(self) -> str:
        """What it wrote to stderr, once it has ended; where every thread was, if it does not end."""
        try:
            return self.process.communicate(timeout=300)[1]
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks
            pytest.fail(f"it does not end:\n{self.process.communicate()[1]}")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts toy stages; what is left of them is killed after the test."""
    started: list[Started] = []

    def one(*flags: str, **environment: str) -> Started:
        started.append(Started(list(flags), environment))
        return started[-1]

    yield one
    for each in started:
        each.process.kill()
        each.process.communicate()


@pytest.fixture
def outage(s3_server: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A real S3 server that can go away, and the variables that lead there; a request is tried for 1 s."""
    with Outage(s3_server.endpoint) as proxy:
        for name, value in s3_server.environment(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
        monkeypatch.setenv("YANMO_S3_RETRY_SECONDS", "1")
        yield proxy
        proxy.end()


def written(place: str) -> str:
    """What the channel's newest output of the toy stage says."""
    store = open_store(place)
    pointer = read_pointer(store, "dev", "toy")
    assert pointer is not None
    return open_reference(store, pointer).path("text.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["status", "swallow", "refused"])
def test_a_store_that_is_away_at_the_start_and_in_the_work_is_waited_for(
    outage: Outage, s3_place: str, start: Start, kind: Kind
) -> None:
    place = f"s3://{s3_place}/{kind}"
    outage.begin(kind)
    run = start(f"--store={place}", "--wait-seconds=3600", "--sleep-seconds=3", "--text=春")
    wait_until(lambda: run.waits_for("store"), "it does not wait")
    outage.end()
    wait_until(lambda: bool(list(open_store(place).list("runs/toy"))), "it has no lease")
    outage.begin(kind)
    wait_until(lambda: run.waits_for("store"), "it does not wait")
    outage.end()
    log = run.log()
    assert run.process.returncode == 0, log
    assert written(place) == "春" and "committed" in log
    assert not list(open_store(place).leftovers())


def test_a_store_that_stays_away_ends_the_stage_when_the_wait_is_over(
    outage: Outage, s3_place: str, start: Start
) -> None:
    outage.begin("refused")
    run = start(f"--store=s3://{s3_place}/away", "--wait-seconds=3")
    log = run.log()
    assert run.process.returncode == 75 and "connection refused" in log, log


def test_sigterm_ends_a_stage_that_waits_for_the_store(outage: Outage, s3_place: str, start: Start) -> None:
    """Its lease cannot be given back either; that must not be tried for an hour."""
    place = f"s3://{s3_place}/sigterm"
    run = start(f"--store={place}", "--wait-seconds=36000", "--sleep-seconds=2")
    wait_until(lambda: bool(list(open_store(place).list("runs/toy"))), "it has no lease")
    outage.begin("status")
    wait_until(lambda: run.waits_for("store"), "it does not wait")
    run.process.send_signal(signal.SIGTERM)
    log = run.log()
    assert run.process.returncode == 128 + signal.SIGTERM, log


def test_a_run_of_another_process_is_waited_for_but_no_longer_than_asked(
    store: FileStore, start: Start
) -> None:
    first = start(f"--store={store.root}", "--sleep-seconds=1000")
    wait_until(lambda: bool(list(store.list("runs/toy"))), "it has no lease")
    second = start(f"--store={store.root}", YANMO_WAIT_SECONDS="2")
    log = second.log()
    assert second.process.returncode == 75 and "another run has been making toy/" in log, log
    third = start(f"--store={store.root}", "--wait-seconds=3600")
    wait_until(lambda: third.waits_for("lease"), "it does not wait")
    first.process.kill()  # and nobody waits for it: it stays as a zombie
    log = third.log()
    assert third.process.returncode == 0 and "committed" in log, log


def test_a_stage_whose_lease_was_taken_is_tried_again_and_counts_once(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[str] = []

    def work(run):
        if not taken:
            taken.append(f"runs/toy/{run.key}/LEASE.json")
            store.delete(taken[0])
        return toy_stage.work(run)

    steps = toy_stage.Steps(work, prepare=toy_stage.prepare, finish=toy_stage.finish)
    assert main(toy_stage.STAGE, steps, [f"--store={store.root}", "--metrics-port=-1"]) == 75
    taken.clear()
    monkeypatch.setenv(waiting.VARIABLE, "60")
    assert main(toy_stage.STAGE, steps, [f"--store={store.root}", "--metrics-port=-1"]) == 0
    assert "try 1 failed: " in capsys.readouterr().err
    pointer = read_pointer(store, "dev", "toy")
    assert pointer is not None
    metrics = open_reference(store, pointer).path("metrics.prom").read_text(encoding="utf-8")
    assert "yanmo_toy_documents_total 1.0" in metrics
    assert re.search(r'^yanmo_toy_waited_seconds_total{reason="retry"} [5-9]', metrics, re.M), metrics


class Clock:
    """Time that passes by sleeping and by what the test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def tell(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ended(clock: Clock, serve: Callable[[int], int], wait_seconds: float) -> int:
    return until_it_ends(serve, wait_seconds, clock=clock.tell, sleep=clock.sleep)


def failing(clock: Clock, errors: Iterator[Exception | None], seconds: float = 0.0) -> Callable[[int], int]:
    def serve(number: int) -> int:
        clock.sleep(seconds)
        error = next(errors)
        if error:
            raise error
        return number

    return serve


def test_what_passes_is_tried_until_it_has_passed_and_what_does_not_is_not(clock: Clock) -> None:
    passing = [StorageError("a"), LeaseLost("b"), TimeoutError("c"), ConnectionResetError("d")]
    assert ended(clock, failing(clock, iter([*passing, None])), 3600) == 5
    for final in (DataError("x"), ValueError("ours"), FileNotFoundError("y")):
        with pytest.raises(type(final)):
            ended(clock, failing(clock, iter([StorageError("a"), final])), 3600)


@pytest.mark.parametrize("wait", [5, 60, 3600, 21600])
def test_the_waits_of_a_failure_at_the_start_never_exceed_the_bound(clock: Clock, wait: int) -> None:
    with pytest.raises(StorageError):
        ended(clock, failing(clock, (StorageError("away") for _ in itertools.count())), wait)
    assert wait / 3 <= clock.now <= wait


def test_the_third_lost_worker_of_a_day_is_the_last(clock: Clock) -> None:
    lost = (WorkerLost("killed") for _ in itertools.count())
    serve, tries = failing(clock, lost, seconds=700), []

    def counted(number: int) -> int:
        tries.append(number)
        return serve(number)

    with pytest.raises(WorkerLost):
        ended(clock, counted, 21600)
    assert tries == [1, 2, 3]
    each_half_day = failing(clock, iter([WorkerLost("killed")] * 9 + [None]), seconds=45_000)
    assert ended(clock, each_half_day, 21600) == 10


def test_no_try_follows_when_the_process_was_asked_to_end(clock: Clock) -> None:
    waiting.end_waits()
    try:
        with pytest.raises(StorageError):
            ended(clock, failing(clock, iter([StorageError("away")])), 3600)
    finally:
        waiting._ending.clear()
