"""stdout holds what a command answers and nothing else, whatever the libraries under it print."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

NOISE = "a library's noise"
LOUD = f"""
import os, subprocess, sys
def make_noise():
    os.write(1, b"{NOISE}\\n")
    subprocess.run(["echo", {NOISE!r}])
"""


TALK = f"""
{LOUD}
from yanmo.common.answers import answer, only_answers, take_stdout
take_stdout()
print("before")
with only_answers():
    print({NOISE!r})
    answer("first")
    answer("second\\n")
    make_noise()
    with only_answers():
        print({NOISE!r})
        make_noise()
        answer("third")
print("after")
"""


def test_prints_of_python_c_and_children_go_to_stderr_and_answers_keep_their_order():
    done = subprocess.run([sys.executable, "-c", TALK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["before", "first", "second", "third", "after"]
    assert done.stderr.count(NOISE) == 6


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_process_without_stdout_or_stderr_runs_all_the_same(closed, tmp_path):
    code = "from yanmo.common.answers import answer, only_answers, take_stdout; take_stdout(); answer('1')"
    code += chr(10) + "with only_answers(): print('2'); answer('3')" + chr(10) + "open('made', 'w')"
    line = f'{sys.executable} -c "{code}" {closed}'
    assert subprocess.run(line, shell=True, cwd=tmp_path).returncode == 0
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("way", ["-u", "PYTHONUNBUFFERED"])
def test_what_is_printed_unbuffered_stays_so(way):
    """Killed at once, it has lost nothing that was printed."""
    code = (
        "from yanmo.common.answers import take_stdout; take_stdout(); print('first'); import os; os._exit(9)"
    )
    flags = ["-u"] if way == "-u" else []
    env = {**os.environ, **({} if flags else {"PYTHONUNBUFFERED": "1"})}
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (9, "first\n")


def test_what_would_steer_a_terminal_is_shown_and_json_stays_json():
    title = "\x1b[2J诗\u202e词\x07\u2066好\n\tй"
    code = (
        "import json; from yanmo.common.answers import answer, only_answers, take_stdout; take_stdout()\n"
        f"print({title!r})\nwith only_answers(): answer(json.dumps({title!r}, ensure_ascii=False))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, answered = done.stdout.splitlines()
    assert lines == [r"\u001b[2J诗\u202e词\u0007\u2066好", "\tй"]
    assert json.loads(answered) == title and "\u202e" not in answered
