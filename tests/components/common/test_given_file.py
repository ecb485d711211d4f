"""Files that a person gives, whatever they are: their bytes, or an error that says what lies there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common.errors import DataError, UsageError
from yanmo.common.given_file import given_json, given_text, json_value, read_given

WHAT = "a list of names"


@given(text=st.text(), mark=st.booleans())
def test_text_in_utf_8_comes_back_with_or_without_a_mark(tmp_path_factory, text: str, mark: bool) -> None:
    path = tmp_path_factory.mktemp("given") / "names"
    path.write_bytes(b"\xef\xbb\xbf" * mark + text.encode())
    assert given_text(path, WHAT) == (text if mark else text.removeprefix("\ufeff"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be", "gb18030", "big5"])
def test_text_in_another_encoding_is_refused_with_the_way_to_convert_it(
    tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "names"
    path.write_bytes("春江潮水连海平".encode(encoding, "replace"))
    with pytest.raises(DataError, match=rf"{path}: expected {WHAT}, in UTF-8; found .*iconv -f "):
        given_text(path, WHAT)


def test_more_than_the_bound_is_refused_and_a_device_ends(tmp_path: Path) -> None:
    path = tmp_path / "names"
    path.write_bytes(b"x" * 100)
    assert len(read_given(path, WHAT, most_bytes=100)) == 100
    for large in (path, "/dev/zero"):
        with pytest.raises(UsageError, match=f"--names: expected {WHAT}, found more than 99 bytes"):
            read_given(large, WHAT, shown="--names", most_bytes=99, wrong=UsageError)


@pytest.mark.parametrize(
    ("put", "found"),
    [
        (Path.mkdir, "a folder: look at the path"),
        (os.mkfifo, "said nothing"),
        (lambda path: path.symlink_to(path.name), "symbolic links: look at the path"),
        (lambda path: path.symlink_to("/proc/self/mem"), "Input/output error: look at the path"),
    ],
)
def test_what_is_no_file_is_named(tmp_path: Path, put: Callable, found: str) -> None:
    put(tmp_path / "names")
    with pytest.raises(DataError, match=f"names: expected {WHAT}, found .*{found}"):
        read_given(tmp_path / "names", WHAT, pipe_seconds=0.1)


def test_a_pipe_that_somebody_writes_is_read_to_its_end(tmp_path: Path) -> None:
    path, text = tmp_path / "pipe", "春" * 100_000
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(text, encoding="utf-8"))
    writer.start()
    assert given_text(path, WHAT) == text
    writer.join()


def test_a_missing_file_is_left_to_the_caller_and_a_name_with_nul_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_given(tmp_path / "names", WHAT)
    with pytest.raises(DataError, match="look at the path"):
        read_given("a\0b", WHAT)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a": }', "nul"])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "names"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"{path}: expected {WHAT}; it is not JSON: "):
        given_json(path, WHAT)


@pytest.mark.parametrize("text", ["", "x", "[" * 100_000, '{"a":' * 100_000, "\ufeff{}"])
def test_whatever_is_wrong_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        json_value(text)
