"""What lies where an object of a folder should: never waited for, and not taken for "nothing there"."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from yanmo.common.errors import DataError, exit_code
from yanmo.store.file_store import FileStore

NAME = "pointers/dev/train.json"


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


PUT: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("what", PUT)
def test_what_is_no_file_in_the_place_of_an_object_is_damage(store: FileStore, what: str) -> None:
    path = store.root / NAME
    path.parent.mkdir(parents=True)
    PUT[what](path)
    for use in (
        lambda: store.read(NAME),
        lambda: store.stat(NAME),
        lambda: store.digest(NAME),
        lambda: store.replace(NAME, b"{}", "version"),
    ):
        with pytest.raises(DataError, match=f"{NAME}: expected a file, found .*; remove it"):
            use()


def test_a_folder_in_the_place_of_an_object_ends_with_65(store: FileStore) -> None:
    (store.root / NAME).mkdir(parents=True)
    with pytest.raises((DataError, IsADirectoryError)) as raised:
        store.read(NAME)
    assert exit_code(raised.value) == 65
    with pytest.raises(DataError, match="found a folder"):
        store.stat(NAME)


def test_an_object_that_is_not_there_is_not_there(store: FileStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.read(NAME)
    assert store.stat(NAME) is None and store.digest(NAME) is None
