"""The record of what `auto` became."""

from __future__ import annotations

import pytest

from yanmo.common.errors import DataError
from yanmo.store.file_store import FileStore
from yanmo.store.runs.auto_record import read_record, record_name

NAME = record_name("train", "5" * 64)


def test_a_record_of_a_later_version_is_not_called_damaged(store: FileStore) -> None:
    """Nobody should delete what is whole."""
    store.create(NAME, b'{"schema": "yanmo.auto/2", "stage": "train"}')
    with pytest.raises(DataError, match="another version") as caught:
        read_record(store, NAME)
    assert "damaged: " not in str(caught.value) and "delete this" not in str(caught.value)


@pytest.mark.parametrize("data", [b"{}", b"[]", b"\xff", b'{"schema": "yanmo.auto/1"}'])
def test_a_damaged_record_says_how_to_replace_it(store: FileStore, data: bytes) -> None:
    store.create(NAME, data)
    with pytest.raises(DataError, match="delete this record"):
        read_record(store, NAME)
