"""How the workers ended becomes the stage's own error and exit code."""

from types import SimpleNamespace

import pytest

from yanmo.common.errors import DataError, ExitCode, UsageError, exit_code
from yanmo.train.job import (
    STOP,
    Status,
    failure,
    forget_earlier_start,
    parse_status,
    read_metrics,
)
from yanmo.train.supervision.ending import Ending, raise_failure


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), ExitCode.USAGE),
        (DataError("x"), ExitCode.DATA),
        (OSError(5, "Input/output error", "f"), ExitCode.RETRY),
        (OSError(28, "No space left on device", "f"), ExitCode.ENVIRONMENT),
        (ZeroDivisionError("x"), ExitCode.BUG),
    ],
)
def test_a_ranks_error_keeps_its_exit_code_on_its_way_through_the_log(error, code, capfd):
    failure(1, error).send()
    Status(0, "done").send()
    lines = ["12:00:00 train an ordinary line\n", *capfd.readouterr().err.splitlines(keepends=True)]
    statuses = [s for s in (parse_status(line.encode()) for line in lines) if s]
    assert [s.rank for s in statuses] == [1, 0]
    with pytest.raises(Exception) as caught:
        raise_failure(Ending(ranks=2, statuses=statuses))
    assert exit_code(caught.value) == code


def deep_in_libraries(levels):
    """As when a kernel of torch refuses: many frames that are not ours below the one that asked."""
    code = "f0 = lambda: 1 / 0\n" + "".join(f"f{n} = lambda: f{n - 1}()\n" for n in range(1, levels))
    scope = {}
    exec(compile(code, "/somewhere/site-packages/torch/_library/autograd.py", "exec"), scope)
    return scope[f"f{levels - 1}"]()


@pytest.mark.parametrize("levels", [3, 40])
def test_a_traceback_through_libraries_still_says_where_we_were(levels, capfd):
    try:
        read_metrics(SimpleNamespace(open=lambda how: deep_in_libraries(levels)))
    except ZeroDivisionError as error:
        failure(0, error).send()
    (line,) = [line for line in capfd.readouterr().err.splitlines(keepends=True) if "yanmo-status" in line]
    found = parse_status(line.encode()).trace
    assert len(found.encode()) <= 1500 and found.endswith("ZeroDivisionError: division by zero")
    assert "job.py" in found and "read_metrics" in found and "^^^" not in found
    assert ("  ...\n" in found) is (levels == 40)


def test_what_an_earlier_start_left_is_cleared(tmp_path):
    (tmp_path / STOP).touch()
    forget_earlier_start(tmp_path)
    assert not (tmp_path / STOP).exists()


def test_a_line_that_is_being_written_is_not_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"st', encoding="utf-8")
    assert [x["step"] for x in read_metrics(path)] == [1, 2]


def test_a_status_is_found_behind_a_half_line_and_a_mixed_up_one_is_no_status(capfd):
    Status(1, "paused", step=7).send()
    line = capfd.readouterr().err.encode()
    found = parse_status(b"progress 17 %" + line)
    assert found is not None and (found.rank, found.step) == (1, 7)
    assert parse_status(line[:40] + b"12:00:00 train another rank's\n") is None


def test_a_long_message_in_chinese_goes_through_the_pipe_in_one_piece(capfd):
    failure(0, DataError("\u5b57\u5b57 " * 2000)).send()
    line = capfd.readouterr().err.encode()
    assert len(line) <= 4096 and parse_status(line).message.startswith("\u5b57\u5b57 " * 50)


def test_a_line_that_a_power_cut_damaged_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\0\0\0\0\n"text"\n{"step": 2, "loss": "\xe2\x80\xa8"}\n')
    assert [x["step"] for x in read_metrics(path)] == [1, 2]
