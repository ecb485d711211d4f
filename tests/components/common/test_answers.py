"""stdout holds what a command answers and nothing else, whatever the libraries under it print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from yanmo.common.answers import answer, only_answers
from yanmo.store.commit import Recipe, Result, commit_once
from yanmo.store.opening import open_store
from yanmo.store.pointers import move_pointer

NOISE = "a library's noise"
LOUD = f"""
import os, subprocess, sys
def make_noise():
    os.write(1, b"{NOISE}\\n")
    subprocess.run(["echo", {NOISE!r}])
"""
SITE = """
import importlib.abc, importlib.util, sys
{loud}
class Loud(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.left = set({libraries!r})
    def find_spec(self, name, path, target=None):
        if name not in self.left:
            return None
        self.left.remove(name)
        spec = importlib.util.find_spec(name)
        plain = spec.loader.exec_module
        def execute(module):
            plain(module)
            make_noise()
        spec.loader.exec_module = execute
        return spec

sys.meta_path.insert(0, Loud())
"""


@pytest.fixture(scope="module")
def loud(tmp_path_factory) -> dict[str, str]:
    """An environment in which libraries and their children write to stdout when they are imported."""
    folder = tmp_path_factory.mktemp("site")
    libraries = ("pyarrow.parquet", "numba", "torch", "tokenizers", "kfp.compiler", "jieba")
    (folder / "sitecustomize.py").write_text(SITE.format(loud=LOUD, libraries=libraries), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}


def command(*argv: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "yanmo.cli", *map(str, argv)]
    return subprocess.run(line, capture_output=True, text=True, env=env)


def test_a_compiled_pipelines_path_is_all_that_compile_answers(loud, tmp_path):
    done = command("compile", "--out", tmp_path, env=loud)
    assert done.returncode == 0, done.stderr
    assert NOISE in done.stderr
    assert {Path(line).parent for line in done.stdout.splitlines()} == {tmp_path, tmp_path / "components"}


@pytest.mark.process
def test_a_comparison_of_tokenizers_is_all_that_it_answers(loud, tmp_path):
    text = Path(__file__).parents[2] / "data/documents.jsonl"
    store = ("--store", tmp_path / "s", "--channel", "dev")
    made = command("curate", "--sources", text, "--max-malformed-share", "1", *store, env=loud)
    assert made.returncode == 0, made.stderr
    options = ("--candidates", "jieba,bpe", "--json", *store)
    done = command("tokenizer", "compare", "--documents", "dev/curate", *options, env=loud)
    assert done.returncode == 0, done.stderr
    assert NOISE in done.stderr and isinstance(json.loads(done.stdout), dict)


def test_what_stores_and_channels_hold_is_all_that_is_answered(loud, tmp_path):
    store = open_store(str(tmp_path))

    def work(attempt) -> Result:
        attempt.write("a.txt", "文")
        return Result(counts={"documents": 1})

    output = commit_once(store, Recipe(stage="curate", revision=1, semantic={}, inputs={}), work)
    move_pointer(store, "dev", "curate", output.reference)
    for argv in (("store", "ls", "--json"), ("resolve", "--channel", "dev")):
        done = command(*argv, "--store", tmp_path, env=loud)
        assert done.returncode == 0, done.stderr
        json.loads(done.stdout)


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


def test_a_command_answers_into_a_closed_stdout(tmp_path):
    line = f"{sys.executable} -m yanmo.cli resolve --channel dev --store {tmp_path} >&-"
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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


def test_inside_a_process_of_others_answers_go_where_its_stdout_goes(capsys):
    with only_answers():
        print(NOISE)
        answer("yes")
    out, err = capsys.readouterr()
    assert (out, err) == ("yes\n", f"{NOISE}\n")


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
