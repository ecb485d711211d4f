"""Every command answers, complains and ends alike: stages, tools, run and compile."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from yanmo.cli import COMMANDS
from yanmo.common.errors import ExitCode
from yanmo.common.names import STAGES
from yanmo.options.help import version

ASKED = [[name] for name in COMMANDS] + [["promote", "history"], ["promote", "rollback"]]
ASKED += [["store", "ls"], ["cache", "show"], ["tokenizer", "compare"]]


def yanmo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "yanmo.cli", *words], capture_output=True, text=True)


@pytest.mark.parametrize("stage", [*STAGES, "resolve"])
def test_a_pods_command_answers(stage: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"yanmo.{stage}", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{version()}\n", "")


@pytest.mark.process(few=3)
@pytest.mark.parametrize("command", ASKED[: len(COMMANDS)], ids=" ".join)
def test_every_command_says_its_version_on_stdout(command: list[str]) -> None:
    done = yanmo(*command, "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{version()}\n", "")


@pytest.mark.process(few=3)
@pytest.mark.parametrize("command", ASKED, ids=" ".join)
def test_every_command_refuses_an_unknown_option_in_the_same_way(command: list[str]) -> None:
    done = yanmo(*command, "--sotre=x")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, ""), done.stderr
    first = done.stderr.splitlines()[0]
    assert re.match(rf"\d\d:\d\d:\d\d {command[0]} +\S", first), first
    assert "Traceback" not in done.stderr and "--help" in done.stderr


def test_a_reader_that_has_seen_enough_ends_the_history_without_a_word(tmp_path) -> None:
    asked = [sys.executable, "-m", "yanmo.cli", "promote", "history", f"--store={tmp_path}/store", "--json"]
    process = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    _, stderr = process.communicate()
    assert (process.returncode, stderr) == (ExitCode.DONE, "")


READERS = (
    ["promote", "history", "--channel=main"],
    ["resolve", "--channel=main"],
    ["store", "show", "main/champion"],
)


@pytest.mark.process(few=2)
@pytest.mark.parametrize("as_module", [False, True], ids=["console script", "python -m"])
@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_sigterm_ends_a_command_that_waits_for_its_store(command, as_module, tmp_path) -> None:
    """A server that takes the connection and says nothing."""
    module = COMMANDS[command[0]][0]
    words = [module, *command[1:]] if as_module else ["yanmo.cli", *command]
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "YANMO_SCRATCH": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        place = ["--store=s3://bucket/store", f"--endpoint=http://127.0.0.1:{server.getsockname()[1]}"]
        process = subprocess.Popen(
            [sys.executable, "-m", *words, *place],
            env={**os.environ, **keys},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with server.accept()[0] as connection:
            assert connection.recv(4), "it has asked, and waits"
            process.send_signal(signal.SIGTERM)
            _, output = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "Traceback" not in output


UNHEARD = """
import os, signal, threading
from yanmo.common.command_end import as_process

def main():
    threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGTERM)).start()
    os.read(os.pipe()[0], 1)
    return 0

as_process(main)
"""


def test_sigterm_that_did_not_wake_the_main_thread_ends_a_call_that_waits() -> None:
    """As one that comes just before the call does: its handler would run when the call is over."""
    ended = subprocess.run([sys.executable, "-c", UNHEARD], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr


OWN_HANDLER = """
import signal, sys, time
from yanmo.common.command_end import as_process

def main():
    count = []
    signal.signal(signal.SIGTERM, lambda *_: count.append(1))
    signal.raise_signal(signal.SIGTERM)
    time.sleep(1)
    return len(count)

as_process(main)
"""


def test_a_stage_with_a_handler_of_its_own_gets_sigterm_once() -> None:
    ended = subprocess.run([sys.executable, "-c", OWN_HANDLER], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended.stderr


INTERRUPTED = """
import signal, threading
from yanmo.common.command_end import as_process
from yanmo.common.threads import thread_pool

POOL = thread_pool(2, "pool")
start = threading.Thread.start

def interrupted(thread):
    start(thread)
    if thread.name.startswith("pool"):
        signal.raise_signal(signal.SIGTERM)  # its handler raises here

def main():
    threading.Thread.start = interrupted
    POOL.submit(print)
    return 0

as_process(main)
"""


def test_sigterm_while_a_pool_starts_a_thread_does_not_keep_the_process() -> None:
    """concurrent.futures does not know such a thread, which would wait for work for ever."""
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr


ASKED_FOR_STACKS = """
import signal, threading
from yanmo.common.command_end import stacks_on_request

stacks_on_request()
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.raise_signal(signal.SIGUSR1)
"""


def test_sigusr1_writes_the_stacks_of_all_threads_to_stderr_and_ends_nothing() -> None:
    ended = subprocess.run([sys.executable, "-c", ASKED_FOR_STACKS], capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stdout == ""
    assert len(re.findall(r"^(?:Current thread|Thread) 0x", ended.stderr, re.M)) == 2, ended.stderr
