"""Files that their writers share: of a living one nothing is taken, of a dead one nothing is left."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from yanmo.common.errors import StoreUnusable
from yanmo.store.durable_files import locked, make_folders, remove_abandoned, temporary_file


def test_a_temporary_file_stays_while_its_writer_lives_and_is_gone_afterwards(tmp_path: Path) -> None:
    dead = tmp_path / ".tmp-dead"
    dead.write_bytes(b"1")
    with pytest.raises(ZeroDivisionError), temporary_file(tmp_path / "a" / "object", b"2") as alive:
        for one in (alive, dead):
            remove_abandoned(one)
        assert alive.read_bytes() == b"2" and not dead.exists()
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and not list((tmp_path / "a").iterdir())


def test_of_many_who_lock_a_name_one_goes_on_at_a_time_and_no_lock_is_left(tmp_path: Path) -> None:
    inside, most, counted = 0, 0, [0]

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with locked(tmp_path / "locks/name", is_kept=False):
                inside += 1
                most = max(most, inside)
                counted[0] += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, counted) == (1, [200]) and not list((tmp_path / "locks").iterdir())


def test_what_is_no_folder_is_no_reason_to_try_for_ever(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        make_folders(tmp_path / "link" / "below")
    with pytest.raises((FileExistsError, StoreUnusable)), temporary_file(tmp_path / "link/b/c", b""):
        pass
