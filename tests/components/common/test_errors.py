"""What an error of the system tells a person to do."""

import errno
import os

import pytest

from yanmo.common.errors import (
    DataError,
    ExitCode,
    UsageError,
    advice,
    exit_code,
    in_words,
    naming,
)


def test_an_error_of_reading_an_open_file_names_it(tmp_path):
    path = tmp_path / "model.safetensors"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match="Input/output error") as raised, path.open("rb") as file, naming(path):
        file.read(8)
    assert advice(raised.value).startswith(f"{path}: Input/output error; ")


def test_a_read_only_store_says_what_to_do():
    error = OSError(errno.EROFS, "Read-only file system", "/store/runs")
    assert exit_code(error) == ExitCode.ENVIRONMENT
    assert advice(error).startswith("/store/runs: read-only;") and "--store" in advice(error)


def test_a_full_disk_says_where_and_that_nothing_is_lost():
    error = OSError(errno.ENOSPC, "No space left on device", "/store/cas/x")
    assert exit_code(error) == ExitCode.ENVIRONMENT
    assert "while writing /store/cas/x" in advice(error) and "run the same command again" in advice(error)


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_no_error_of_the_system_is_a_bare_number(number):
    error = OSError(number, os.strerror(number), "/data/x")
    said = advice(error)
    assert (
        "/data/x" in said and os.strerror(number).split()[0].lower() in said.lower() and "Errno" not in said
    )
    if exit_code(error) in (ExitCode.USAGE, ExitCode.DATA):
        assert "same command again" not in said
        assert ": " in said and ("look at the path" in said or "change its owner" in said)


def test_errors_of_others_are_told_without_number_and_name():
    assert in_words(FileNotFoundError(errno.ENOENT, "No such file or directory", "x")) == (
        "No such file or directory"
    )
    assert (
        in_words(ValueError("Invalid file. No configuration found."))
        == "Invalid file. No configuration found"
    )
    assert in_words(ValueError("cut here...")) == "cut here..."
    assert in_words(ValueError("not JSON")) == "not JSON" and in_words(MemoryError()) == "MemoryError"
    assert advice(UsageError("--x: 5")) == "--x: 5" and advice(DataError("y: damaged")) == "y: damaged"
