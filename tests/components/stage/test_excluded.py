"""The list of ids that are taken down: a file, or an object in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from yanmo.common.errors import DataError
from yanmo.options.shared import StoreOptions
from yanmo.stage.excluded import digest_of, excluded_ids
from yanmo.store.file_store import FileStore
from yanmo.store.manifest import digest

HERE = StoreOptions()


def test_take_down_lists_allow_comments_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text(f"# asked for on Monday\n{'b' * 64}\n\n{'a' * 64}  # a poem\n")
    found = excluded_ids(f"{path}", HERE)
    assert found == {"a" * 64, "b" * 64}
    assert digest_of(found) == digest(["a" * 64, "b" * 64]), "in any order, as keys of before have it"
    path.write_text("a" * 64 + "\nnot an id\n")
    with pytest.raises(DataError, match=r"ids\.txt:2: expected an id of 64 hexadecimal digits"):
        excluded_ids(f"{path}", HERE)
    with pytest.raises(DataError, match="expected a text file with one id per line: no such file"):
        excluded_ids(f"{tmp_path}/missing", HERE)


def test_the_list_may_be_an_object_of_a_store(tmp_path: Path) -> None:
    FileStore(tmp_path / "texts").create("lists/down.txt", f"{'c' * 64}\n".encode())
    place = (tmp_path / "texts/lists").as_uri()
    assert excluded_ids(f"{place}/down.txt", HERE) == {"c" * 64}
    with pytest.raises(DataError, match=r"missing\.txt: expected a text file with one id per line: no such"):
        excluded_ids(f"{place}/missing.txt", HERE)
    FileStore(tmp_path / "texts").create("lists/wide.txt", "一".encode("utf-16"))
    with pytest.raises(DataError, match=r"wide\.txt: expected .* in UTF-8"):
        excluded_ids(f"{place}/wide.txt", HERE)
