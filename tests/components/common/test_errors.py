"""What an error of the system tells a person to do."""

import errno

from yanmo.common.errors import ExitCode, advice, exit_code


def test_a_read_only_store_says_what_to_do():
    error = OSError(errno.EROFS, "Read-only file system", "/store/runs")
    assert exit_code(error) == ExitCode.ENVIRONMENT
    assert advice(error).startswith("/store/runs: read-only;") and "--store" in advice(error)


def test_a_full_disk_says_where_and_that_nothing_is_lost():
    error = OSError(errno.ENOSPC, "No space left on device", "/store/cas/x")
    assert exit_code(error) == ExitCode.RETRY
    assert "while writing /store/cas/x" in advice(error) and "run the same command again" in advice(error)
