from __future__ import annotations

import functools
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asked_of_workers import ENDS, ERRORS, TwoWords, end, fail, one_thread, touch_later
from hypothesis import given
from hypothesis import strategies as st
from processes import is_alive, needs_proc, survivors

from yanmo.common import child_processes as module
from yanmo.common.child_processes import preload
from yanmo.common.errors import ExitCode, WorkerLost, exit_code
from yanmo.common.workers import Workers, portable
from yanmo.engine.maps import ordered_map

COMPONENTS = Path(__file__).parents[3] / "components"
HERE = Path(__file__).parent


def test_results_come_in_the_order_of_tasks() -> None:
    lengths = [str(n) * (n % 7) for n in range(60)]
    assert list(ordered_map(len, lengths, workers=2)) == [len(x) for x in lengths]
    assert list(ordered_map(len, lengths, workers=1)) == [len(x) for x in lengths]
    assert list(ordered_map(len, lengths[:2], workers=2)) == [len(x) for x in lengths[:2]]


def test_only_a_few_tasks_are_drawn_ahead_of_the_results() -> None:
    drawn = []

    def tasks() -> Iterator[str]:
        for n in range(40):
            drawn.append(n)
            yield "x"

    with ordered_map(len, tasks(), workers=2) as results:
        next(results)
        assert len(drawn) <= 10


def test_as_many_processes_work_as_were_asked_for_and_stay_for_the_next_call() -> None:
    first = {pid for _, pid in ordered_map(one_thread, range(300), workers=2)}
    second = {pid for _, pid in ordered_map(one_thread, range(300), workers=2)}
    assert len(first) == 2 and os.getpid() not in first and second == first


@pytest.mark.parametrize("place", [0, 10, 19])
@pytest.mark.parametrize("how", ENDS)
def test_a_lost_worker_is_one_answer_whatever_ended_it_and_wherever(how: str, place: int) -> None:
    asked = ["go on"] * 20
    asked[place] = how
    with pytest.raises(WorkerLost) as lost, ordered_map(end, asked, 2, "a smaller --batch-bytes") as results:
        list(results)
    words = {"killed": "SIGKILL", "segmentation fault": "SIGSEGV", "exit 137": "exit code 137"}
    assert words.get(how, "") in str(lost.value)
    assert "in end; what it was making is lost" in str(lost.value)
    assert "with a smaller --batch-bytes (there were 2 workers)" in str(lost.value)
    assert exit_code(lost.value) == ExitCode.RETRY
    with ordered_map(len, ["next"] * 20, workers=2) as results:
        assert list(results) == [4] * 20, "a new pool takes its place"


def test_workers_that_are_lost_while_others_start_say_how_they_ended() -> None:
    def lost() -> str:
        with pytest.raises(WorkerLost) as found:
            workers.call(os._exit, 3)
        return str(found.value)

    with Workers(4) as workers:
        asked = [workers.in_thread(lost) for _ in range(300)]
        assert all("ended with exit code 3 in _exit" in one.result() for one in asked)


@pytest.mark.parametrize("how", ERRORS)
def test_an_error_in_a_worker_ends_the_stage_as_it_would_have_here(how: str) -> None:
    expected = ERRORS[how]()
    with pytest.raises(Exception) as found, Workers(1) as workers:
        workers.call(fail, how)
    assert exit_code(found.value) == exit_code(expected) and not isinstance(found.value, WorkerLost)
    assert str(expected) in str(found.value)
    assert "in fail" in "".join(found.value.__notes__), "where it was raised"


@given(
    st.sampled_from(["usage", "missing", "storage", "bug"]),
    st.text(),
)
def test_an_error_that_survives_pickling_stays_as_it_is(how: str, text: str) -> None:
    error = type(ERRORS[how]())(text)
    again = portable(error)
    assert (type(again), again.args) == (type(error), (text,))


def test_the_standard_pool_takes_an_error_that_does_not_unpickle_for_a_killed_process() -> None:
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(TwoWords("a", "b")))
    assert type(portable(TwoWords("a", "b"))).__name__ == "DataError"


def test_a_task_that_cannot_be_pickled_is_the_callers_error_and_the_worker_stays() -> None:
    with Workers(1) as workers:
        pid = workers.call(one_thread, 0)[1]
        with pytest.raises((AttributeError, pickle.PicklingError)):
            workers.call(one_thread, lambda: 0)
        assert workers.call(one_thread, 1) == (1, pid)


def begun(path: Path) -> int:
    """The process that began to make a file."""
    note = path.with_name(f"{path.name}.begun")
    deadline = time.monotonic() + 60
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return int(note.read_text())


def test_what_an_error_leaves_behind_is_not_written_afterwards(tmp_path: Path) -> None:
    late = tmp_path / "late"
    with pytest.raises(ZeroDivisionError), Workers(2) as workers:
        workers.submit(touch_later, str(late), 60.0)
        pid = begun(late)
        _ = 1 / 0
    assert not is_alive(pid) and not late.exists()


def test_what_was_begun_is_finished_where_nothing_went_wrong(tmp_path: Path) -> None:
    late = tmp_path / "late"
    with Workers(1) as workers:
        workers.submit(touch_later, str(late), 0.2)
        pid = begun(late)
    assert late.exists() and not is_alive(pid)


def test_a_name_to_preload_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModuleNotFoundError):
        preload("yanmo.common.workers", "yanmo.common.no_such")


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from asked_of_workers import touch_later
from yanmo.common.workers import Workers
if __name__ == "__main__":
    with Workers(2) as workers:
        made = [workers.submit(touch_later, name, 600.0) for name in sys.argv[2:]]
        [one.result() for one in made]
"""


def start(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A process that waits for two workers, and those."""
    script, files = tmp_path / "script.py", [tmp_path / "one", tmp_path / "two"]
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(COMPONENTS)}
    command = [sys.executable, str(script), str(HERE), *map(str, files)]
    # A shell starts its background jobs with Ctrl-C ignored, and that is inherited.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True, preexec_fn=heed
    )
    return process, [begun(file) for file in files]


KILLS: dict[str, Callable[[int], None]] = {
    "kill -9": lambda pid: os.kill(pid, signal.SIGKILL),
    "SIGTERM": lambda pid: os.kill(pid, signal.SIGTERM),
    "Ctrl-C": lambda pid: os.killpg(pid, signal.SIGINT),
}


@needs_proc
@pytest.mark.parametrize("how", KILLS)
def test_no_process_outlives_the_one_that_started_it(how: str, tmp_path: Path) -> None:
    process, workers = start(tmp_path)
    assert all(map(is_alive, workers))
    KILLS[how](process.pid)
    _, stderr = process.communicate()
    assert not survivors(process.pid)
    assert not (tmp_path / "one").exists() and not (tmp_path / "two").exists()
    if how == "Ctrl-C":
        assert stderr.count("KeyboardInterrupt") == 1, "the workers say nothing"


@needs_proc
def test_a_worker_that_is_killed_from_outside_ends_the_others(tmp_path: Path) -> None:
    process, workers = start(tmp_path)
    os.kill(workers[1], signal.SIGKILL)
    os.kill(workers[0], signal.SIGKILL)
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert "WorkerLost: a worker process was killed (SIGKILL) in touch_later" in stderr
    assert not survivors(process.pid)


def test_the_pool_is_in_one_place() -> None:
    elsewhere = [
        path.name
        for path in COMPONENTS.rglob("*.py")
        for text in [path.read_text(encoding="utf-8")]
        if "ProcessPoolExecutor" in text or "get_context(" in text
    ]
    assert elsewhere == [Path(module.__file__).name]


SPENDING = """
import resource, sys
sys.path[:0] = [{tests!r}, {components!r}]
from asked_of_workers import spend
from yanmo.common.child_processes import cpu_seconds
from yanmo.engine.maps import ordered_map
from yanmo.common.workers import Workers
if __name__ == "__main__":
    list(ordered_map(spend, [0.1] * 20, 2))  # these stay
    with Workers(2) as some:
        [future.result() for future in [some.submit(spend, 0.5) for _ in range(2)]]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(cpu_seconds(), children.ru_utime + children.ru_stime)
"""


@pytest.mark.process
@needs_proc
def test_the_cpu_time_of_workers_is_known_here_and_to_whoever_waits_for_us(tmp_path: Path) -> None:
    script = tmp_path / "spending.py"
    script.write_text(SPENDING.format(tests=str(HERE), components=str(COMPONENTS)), encoding="utf-8")
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    here, children = map(float, process.stdout.read().split())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert here >= 2.9, "20 tasks of 0.1 s and 2 of 0.5 s, by the CPU and not by the clock"
    assert children < 1, "what the system says by itself before the end"
    assert usage.ru_utime + usage.ru_stime >= here


@needs_proc
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_of_workers_that_is_killed_or_stopped_holds_nobody_up(sent: signal.Signals) -> None:
    """Killed: the answer is that of a lost worker. Stopped: `close` lets go whoever waits for a worker."""
    code = (
        "import os, signal, sys, threading, time\n"
        "from multiprocessing import forkserver\n"
        "from yanmo.common.errors import exit_code\n"
        "from yanmo.common.workers import Workers\n"
        "workers = Workers(2)\n"
        "assert workers.call(len, 'ab') == 2\n"
        f"os.kill(forkserver._forkserver._forkserver_pid, {int(sent)})\n"
        "if sys.argv[1] == 'SIGKILL':\n"
        "    workers._idle.clear()\n"
        "waiting = [workers.submit(time.sleep, 0.1) for _ in range(4)]\n"
        "time.sleep(0.5)\n"
        "workers.close(at_once=True)\n"
        "errors = [w.exception() for w in waiting if not w.cancelled()]\n"
        "assert all(e is None or exit_code(e) == 75 or 'ended' in str(e) for e in errors), errors\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(COMPONENTS)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, sent.name],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 0
    assert not survivors(process.pid)
