"""The bar of progress, in real pseudo-terminals."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import in_a_terminal

ROOT = Path(__file__).parents[3]
WORKS = """
import logging, sys, time
from yanmo.common.command_end import as_process, ended
from yanmo.common.logs import Progress, setup

def serve():
    setup({level!r}, "test", {form!r})
    log = logging.getLogger("yanmo.test")
    log.info("it begins")
    progress = Progress(log, "read", 40, unit="files", period=1.0)
    for number in range(40):
        time.sleep(0.05)
        progress.add(1)
        if number == 30:
            {at_30}
    print("answered")
    log.info("it ends")
    return 0

as_process(lambda: ended("test", serve))
"""
BAR = re.compile(r"read \d+ of 40 files [━╸╺]+ 0:00:0\d left, [\d.]+ files/s")
PERIODIC = "read # of # files (# %), # files/s, # s left"


def works(level: str = "info", form: str = "", at_30: str = "pass") -> str:
    return WORKS.format(level=level, form=form, at_30=at_30)


def program(**more: str) -> list[str]:
    return ["-c", works(**more)]


def shapes(lines: list[str]) -> list[str]:
    """What lines say without times and numbers, each once."""
    told = (re.sub(r"^\d\d:\d\d:\d\d test +", "", line) for line in lines)
    return list(dict.fromkeys(re.sub(r"\d+(\.\d+)?", "#", line) for line in told))


def test_a_bar_stands_below_the_log_and_is_gone_at_the_end() -> None:
    code, screen, text = in_a_terminal(program(at_30="log.warning('beside it')"))
    assert code == 0, text
    bars = [line for line in screen.erased if BAR.fullmatch(line)]
    assert len(bars) > 5 and len({bar.partition(" of")[0] for bar in bars}) > 5, text
    assert shapes(screen.lines) == ["it begins", PERIODIC, "beside it", "answered", "it ends", ""]
    assert "\x1b[?25" not in text, "the cursor was never away"


def test_elsewhere_its_lines_are_those_of_before(tmp_path: Path) -> None:
    """Where stderr is a pipe, or can do nothing, in a pod, for programs; where only warnings are wanted."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "components")}
    loaded = works(at_30="assert not any('rich' in name.split('.') for name in sys.modules)")
    piped = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, env=environment)
    assert piped.returncode == 0 and "\x1b" not in piped.stderr and "\r" not in piped.stderr, piped.stderr
    assert shapes(piped.stderr.splitlines()) == ["it begins", PERIODIC, "it ends"]
    for more in (
        {"environment": {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}},
        {"environment": {"TERM": "dumb"}},
        {"environment": {"YANMO_LOG_FORMAT": "json"}},
        {"words": program(form="json")},
        {"words": program(level="warning")},
    ):
        code, _, text = in_a_terminal(**{"words": ["-c", loaded], **more})  # type: ignore[arg-type]
        assert code == 0 and "━" not in text and "\x1b" not in text, (more, text)


def test_ctrl_c_and_an_error_leave_a_clean_last_line() -> None:
    code, screen, text = in_a_terminal(program(), interrupt_at="━")
    assert code == 130 and "\x1b[?25" not in text, text
    assert screen.lines[-1] == "", text
    assert "interrupted; the same command starts it again" in screen.lines[-2], text
    code, screen, text = in_a_terminal(program(at_30="raise FileNotFoundError('no such thing')"))
    assert code == 65 and screen.lines[-1] == "" and "no such thing" in "\n".join(screen.lines[-4:]), text
    code, screen, text = in_a_terminal(
        program(at_30="import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    )
    assert code == 128 + signal.SIGTERM and screen.lines[-1] == "", text
    assert not any("━" in line for line in screen.lines)


@pytest.mark.parametrize("columns", [20, 34, 44, 60, 200])
def test_it_never_fills_the_line_and_says_what_matters_most(columns: int) -> None:
    code, screen, text = in_a_terminal(program(), columns)
    bars = [line for line in screen.erased if re.match(r"read \d+ of ", line)]
    assert code == 0 and bars and max(map(len, bars)) < columns, text
    assert all(("━" in bar) == (columns >= 34) for bar in bars)
    assert all(("left" in bar) == (columns >= 44) for bar in bars)
    assert all(("files/s" in bar) == (columns >= 60) for bar in bars)
    assert all(bar.count("━") + bar.count("╸") + bar.count("╺") <= 40 for bar in bars)


def test_of_two_the_newest_has_the_bar_and_the_older_gets_it_back() -> None:
    at_30 = (
        "inner = Progress(log, 'copied', 4_000_000, unit='B', period=100.0); "
        "[(time.sleep(0.2), inner.add(500_000), progress.add(0)) for _ in range(8)]"
    )
    code, screen, text = in_a_terminal(program(at_30=at_30))
    kinds = [line.split()[0] for line in screen.erased if "━" in line]
    changes = [kind for before, kind in itertools.pairwise(["", *kinds]) if kind != before]
    assert code == 0 and changes == ["read", "copied", "read"], text
    copied = re.compile(r"copied 2\.5 MB of 4\.0 MB [━╸╺]{40} 0:00:0\d left, 2\.\d MB/s")
    assert any(copied.fullmatch(line) for line in screen.erased), text
