"""One live run per key: who holds it, who may take it, and what clocks and dead processes do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest
from toy_outputs import wait_until

from yanmo.common.errors import LeaseLost
from yanmo.store.file_store import FileStore
from yanmo.store.runs import lease as lease_module
from yanmo.store.runs.lease import Lease, is_live

NAME = "runs/toy/key/LEASE.json"


def rewrite(store: FileStore, **values: Any) -> None:
    data, version = store.read(NAME)
    store.replace(NAME, json.dumps({**json.loads(data), **values}).encode(), version)


def held(store: FileStore, ttl: float = 60.0) -> Lease:
    lease = Lease(store, NAME, "attempt", ttl)
    assert lease.acquire()
    return lease


def test_a_held_lease_is_refused_to_others_until_it_is_released(store: FileStore) -> None:
    first = held(store)
    assert not Lease(store, NAME, "other").acquire()
    first.release()
    second = held(store)
    with pytest.raises(LeaseLost):
        first.check()
    second.release()


def test_a_lease_is_renewed_before_it_expires(store: FileStore) -> None:
    lease = held(store, ttl=0.3)
    before = json.loads(store.read(NAME)[0])["expires_at"]
    wait_until(lambda: json.loads(store.read(NAME)[0])["expires_at"] > before + 0.3, "renewal")
    lease.check()
    lease.release()


def test_a_silent_lease_of_another_machine_may_be_taken_and_a_renewed_one_may_not(store: FileStore) -> None:
    held(store).release()
    rewrite(store, machine="other/boot/ns", expires_at=1.0, ttl_seconds=0.4)
    waiting = Lease(store, NAME, "mine")
    for renewals in range(6):
        assert not waiting.acquire(), "it was renewed since we looked"
        rewrite(store, renewals=renewals)
        time.sleep(0.1)
    wait_until(waiting.acquire, "silence")
    waiting.release()


def test_a_lease_that_is_old_by_the_stores_clock_is_watched_for_half_its_time(store: FileStore) -> None:
    held(store).release()
    rewrite(store, machine="other/boot/ns", expires_at=1.0, ttl_seconds=30)
    os.utime(store.root / NAME, (1.0, 1.0))
    waiting = Lease(store, NAME, "mine")
    assert not waiting.acquire()
    waiting._seen_at -= 14
    assert not waiting.acquire()
    waiting._seen_at -= 2
    assert waiting.acquire()
    waiting.release()


def test_a_lease_that_the_stores_clock_calls_young_is_watched_for_its_whole_time(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(store).release()
    rewrite(store, machine="other/boot/ns", expires_at=1.0, ttl_seconds=30)
    monkeypatch.setattr(Lease, "_age", lambda lease: 0.0)  # a store whose clock stands still
    waiting = Lease(store, NAME, "mine")
    assert not waiting.acquire()
    waiting._seen_at -= 22
    assert not waiting.acquire()
    waiting._seen_at -= 9
    assert waiting.acquire()
    waiting.release()


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_neither_ends_nor_prolongs_another_machines_lease(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    held(store).release()
    rewrite(store, machine="other/boot/ns", expires_at=1.0, ttl_seconds=0.4)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    waiting = Lease(store, NAME, "mine")
    assert not waiting.acquire()
    started = time.monotonic()
    wait_until(waiting.acquire, "silence")
    assert time.monotonic() - started < 5
    waiting.release()


def test_a_dead_process_of_this_machine_holds_nothing_even_if_its_number_lives_again(
    store: FileStore,
) -> None:
    held(store).release()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    rewrite(store, pid=dead.pid, process_start="1", expires_at=time.time() + 3600)
    held(store).release()
    rewrite(store, pid=os.getpid(), process_start="1", expires_at=time.time() + 3600)
    held(store).release()


def test_the_same_process_number_in_another_pid_namespace_is_not_taken_for_dead(store: FileStore) -> None:
    held(store).release()
    machine = json.loads(store.read(NAME)[0])["machine"].rpartition("/")[0] + "/pid:[1]"
    rewrite(store, machine=machine, pid=999_999_999, process_start="1", expires_at=time.time() + 60)
    assert not Lease(store, NAME, "mine").acquire()


def test_a_lease_is_live_for_lists_while_its_process_runs_or_elsewhere_for_its_time(store: FileStore) -> None:
    lease = held(store)
    assert is_live(store.read(NAME)[0], age=1e9), "its process runs"
    lease.release()
    assert not is_live(store.read(NAME)[0], age=0.0), "given back"
    rewrite(store, machine="other/boot/ns", expires_at=1.0, ttl_seconds=30)
    assert is_live(store.read(NAME)[0], age=30.0)
    assert not is_live(store.read(NAME)[0], age=30.1)


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"expires_at": "x"}', b"[" * 100_000])
def test_a_damaged_lease_file_blocks_nobody(store: FileStore, damage: bytes) -> None:
    store.create(NAME, damage)
    held(store).release()


def test_an_owner_whose_lease_was_taken_notices_and_may_not_commit(store: FileStore) -> None:
    lease = held(store, ttl=0.2)
    rewrite(store, owner="another")
    wait_until(lambda: lease._lost, "notice")
    with pytest.raises(LeaseLost, match="taken over by another run"):
        lease.check()
    lease.release()
    assert json.loads(store.read(NAME)[0])["owner"] == "another", "release leaves the new owner's lease alone"


@pytest.mark.parametrize(("harm", "why"), [(None, "removed by somebody"), (b"{", "damaged while")])
def test_a_lease_that_nobody_took_over_is_not_said_to_be(
    store: FileStore, harm: bytes | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither before a renewal has seen it nor afterwards."""
    lease = held(store, ttl=0.2)
    store.delete(NAME)
    if harm:
        store.create(NAME, harm)
    wait_until(lambda: lease.is_lost, "notice")
    lease._end_renewal()
    for _ in range(2):
        with pytest.raises(LeaseLost, match=why):
            lease.check()
    assert why in caplog.text and "taken over" not in caplog.text
    lease.release()


def test_a_renewal_whose_answer_was_lost_does_not_end_the_run(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = held(store, ttl=0.2)
    real, answers = FileStore.replace, []

    def lost_answer(self: FileStore, name: str, data: bytes, version: str) -> str:
        answer = real(self, name, data, version)
        answers.append(answer)
        if len(answers) == 1:
            raise OSError(5, "the write happened, the answer was lost")
        return answer

    monkeypatch.setattr(FileStore, "replace", lost_answer)
    wait_until(lambda: len(answers) >= 3, "three renewals")
    lease.check()
    lease.release()


def test_a_release_that_cannot_be_written_hides_no_result(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lease = held(store)

    def full(*args: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileStore, "replace", full)
    lease.release()
    assert "could not release" in caplog.text


def test_where_there_is_no_proc_silence_decides(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "_process_start", lambda pid: "")
    lease = held(store, ttl=0.6)
    waiting = Lease(store, NAME, "other")
    for _ in range(8):
        assert not waiting.acquire(), "renewed every third of its time"
        time.sleep(0.1)
    lease._stop.set()  # as if its process were gone
    wait_until(waiting.acquire, "silence")
    waiting.release()
