"""The read-through cache: one download for all, a cap, kills, and files that somebody wrote to."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_outputs import wait_until

from yanmo.common.errors import EnvironmentFault
from yanmo.store.scratch import Scratch

ROOT = Path(__file__).parents[3]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Source:
    """A store of one object that counts its downloads."""

    def __init__(self, data: bytes, pause: float = 0.0) -> None:
        self.data, self.pause, self.downloads = data, pause, 0

    def __call__(self, path: Path) -> None:
        self.downloads += 1
        time.sleep(self.pause)
        path.write_bytes(self.data)

    def get(self, scratch: Scratch, name: str = "cas/a/b") -> Path:
        return scratch.get(name, sha(self.data), len(self.data), self)


def cached(root: Path) -> list[str]:
    return sorted(p.name for p in (root / "objects").glob("??/*") if p.suffix != ".lock")


def test_threads_that_want_one_file_wait_for_its_one_download(tmp_path: Path) -> None:
    source, scratches = Source(b"x" * 100, pause=0.3), [Scratch(tmp_path, 1000) for _ in range(5)]
    threads = [threading.Thread(target=source.get, args=(scratch,)) for scratch in scratches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert source.downloads == 1


def test_the_oldest_is_evicted_and_who_holds_it_keeps_it(tmp_path: Path) -> None:
    one, two, three = (Source(bytes([n]) * 400) for n in range(3))
    reader = Scratch(tmp_path, 1000)
    held = one.get(reader)
    gone = Scratch(tmp_path, 1000)
    two.get(gone)
    os.close(gone._held)  # its process ended
    three.get(Scratch(tmp_path, 1000))
    assert cached(tmp_path) == sorted([sha(one.data), sha(three.data)])
    assert held.read_bytes() == one.data


def test_a_file_that_cannot_fit_below_the_cap_is_refused_with_both_sizes(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 1000)
    held = Source(b"a" * 700).get(scratch)
    with pytest.raises(EnvironmentFault, match=r"does not fit.*in use.*raise --scratch-gib"):
        Source(b"b" * 700).get(scratch, "cas/a/c")
    assert held.exists()


@pytest.mark.parametrize("damage", [b"", b"shorter", b"y" * 100])
def test_a_cached_file_that_was_written_to_is_fetched_anew(tmp_path: Path, damage: bytes) -> None:
    source = Source(b"x" * 100)
    path = source.get(Scratch(tmp_path, 1000))
    os.chmod(path, 0o644)
    path.write_bytes(damage)
    again = Scratch(tmp_path, 1000)
    assert source.get(again).read_bytes() == source.data and source.downloads == 2


def test_a_file_of_another_boot_is_hashed_and_not_fetched_again(tmp_path: Path) -> None:
    source = Source(b"x" * 100)
    path = source.get(Scratch(tmp_path, 1000))
    os.utime(path, (1.0, 12345.0))
    again = source.get(Scratch(tmp_path, 1000))
    assert source.downloads == 1 and again.stat().st_mtime > 12345


def test_a_failed_download_leaves_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise ConnectionError("cut")

    with pytest.raises(ConnectionError):
        Scratch(tmp_path, 1000).get("a", sha(b"x"), 1, fail)
    assert cached(tmp_path) == []


def test_on_a_full_disk_what_nobody_uses_makes_room(tmp_path: Path) -> None:
    old = Scratch(tmp_path, 10_000)
    Source(b"o" * 400).get(old)
    os.close(old._held)
    new = Source(b"n" * 400)

    def download(path: Path) -> None:
        if sha(b"o" * 400) in cached(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        new(path)

    path = Scratch(tmp_path, 10_000).get("a", sha(new.data), 400, download)
    assert path.read_bytes() == new.data

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with pytest.raises(OSError, match="No space left"):
        Scratch(tmp_path, 10_000).get("b", sha(b"c"), 1, full)


def test_work_of_this_process_is_taken_over_and_gone_with_it(tmp_path: Path) -> None:
    scratch, source = Scratch(tmp_path, 1000), Source(b"x" * 10)
    folder = scratch.work("cas/a/b/c")
    (folder / "f").write_bytes(source.data)
    scratch.adopt(folder / "f", sha(source.data))
    assert source.get(scratch).read_bytes() == source.data and source.downloads == 0
    os.close(scratch._held)
    Scratch(tmp_path, 1000).process  # noqa: B018
    assert not folder.exists()


def test_kept_work_outlives_the_process(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, 1000)
    (scratch.kept_work("runs/train/k") / "step").write_text("1")
    scratch.process  # noqa: B018
    os.close(scratch._held)
    assert (Scratch(tmp_path, 1000).kept_work("runs/train/k") / "step").read_text() == "1"


KILLED = """
import sys, time, pathlib
from yanmo.store.scratch import Scratch
def slow(path):
    path.write_bytes(b"half of it")
    print("half", flush=True)
    time.sleep(60)
scratch = Scratch(pathlib.Path(sys.argv[1]), 1000)
(scratch.work("w") / "f").write_bytes(b"unfinished")
scratch.get("a", sys.argv[2], 20, slow)
"""


def test_a_killed_download_neither_blocks_nor_misleads_the_next(tmp_path: Path) -> None:
    source = Source(b"the whole of the file")
    source.data = source.data[:20]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), sha(source.data)],
        env={"PYTHONPATH": str(ROOT / "components")}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    scratch = Scratch(tmp_path, 1000)
    assert source.get(scratch).read_bytes() == source.data
    assert [p.name for p in (tmp_path / "processes").iterdir()] == [scratch.process.name], "its work is swept"
    assert cached(tmp_path) == [sha(source.data)]


def test_a_killed_download_that_nobody_repeats_is_swept_when_room_is_needed(tmp_path: Path) -> None:
    debris = tmp_path / "objects/ab" / f"{'ab' * 32}.part"
    debris.parent.mkdir(parents=True)
    debris.write_bytes(b"half")
    Source(b"x").get(Scratch(tmp_path, 1000))
    assert not debris.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_file_of_another_user_is_refused_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(b"x")
    source.get(Scratch(tmp_path, 1000))

    def refuse(source: Path, target: Path) -> None:
        os.chown(source, 12345, -1)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(EnvironmentFault, match="a scratch folder of their own"):
        source.get(Scratch(tmp_path, 1000))


def test_many_processes_at_a_small_cap_all_read_right_bytes(tmp_path: Path) -> None:
    sources = [Source(bytes([n]) * 300) for n in range(6)]
    wrong: list[str] = []
    make: Callable[[], Scratch] = lambda: Scratch(tmp_path, 1300)  # noqa: E731

    def read(n: int) -> None:
        for turn in range(6):
            scratch = make()
            source = sources[(n + turn) % 6]
            if source.get(scratch).read_bytes() != source.data:
                wrong.append(f"{n}/{turn}")
            os.close(scratch._held)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    wait_until(lambda: len(cached(tmp_path)) <= 4, "the cap holds")
