"""What tests of every room may ask for: a real S3 server, and a bucket on it."""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

import selection
from servers import s3

# A machine may be busy: no limits of time. CI draws the same examples every time, as hypothesis does there by
# itself: its verdict is about the commit. `make test` draws new ones; what it finds becomes an example.
hypothesis.settings.register_profile("yanmo", deadline=None)
hypothesis.settings.register_profile("yanmo-ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("yanmo-ci" if os.environ.get("CI") else "yanmo")

_MEMORY, _GIB = Path("/dev/shm"), 1 << 30


def temporary_files_in_memory() -> None:
    """Put temporary files into memory where there is a lot of it and nobody has named a place (TMPDIR).

    A store flushes each file and its folder to the disk: 4 ms here, 0.03 ms in memory. A whole run needs less
    than 2 GiB (tmp_path_retention_policy in pyproject.toml).
    """
    found = re.search(r"MemAvailable: +(\d+) kB", _text_of(Path("/proc/meminfo")))
    if os.environ.get("TMPDIR") or not found or int(found[1]) << 10 < 12 * _GIB:
        return
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < 8 * _GIB:  # Docker gives 64 MiB
        return
    place = _MEMORY / f"yanmo-tests-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    os.environ["TMPDIR"], tempfile.tempdir = str(place), None


def _text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


temporary_files_in_memory()

# Threads of torch that wait for each other by spinning take the processor from those they wait for: on a busy
# machine several times what they need. Before torch is loaded, here and in all children; ranks too, which
# spin a little where nobody has said how to wait (test_watching.py).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A process that may not write compiled files compiles all of ours at each start: a fifth of a CPU second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without job control starts what it puts into the background with SIGINT ignored, and all processes
# inherit that: the programs under test would not hear Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    selection.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    selection.configure(config)


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection.select(config, items)


def pytest_collection_finish() -> None:
    never_garbage()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    made = yield
    if fixturedef.scope != "function":
        never_garbage()
    return made


def never_garbage() -> None:
    """Thousands of tests, what they import and what they share are never garbage.

    The stages collect garbage between their phases (yanmo.common.freed_memory), and each time looked through
    all of them: three quarters of the CPU time of the tests of curate and tokenize.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what libraries find at the end they call leaked


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    return selection.is_over() or None


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["selection"] = selection.for_the_controller(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if told := getattr(node, "workeroutput", {}).get("selection"):
        selection.from_a_worker(node.config, told)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out and why, also with -q."""
    reports = [r for some in terminalreporter.stats.values() for r in some if hasattr(r, "when")]
    ran = [r.location[0] for r in reports if r.when == "setup"]
    for line in selection.summary(terminalreporter.config, ran):
        terminalreporter.write_line(line)
    skipped = [r.longrepr for r in terminalreporter.stats.get("skipped", [])]
    reasons = Counter((r[2] if isinstance(r, tuple) else str(r)).removeprefix("Skipped: ") for r in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """What a command that a test ran in this process did about signals: processes of later tests inherit it.

    A rank of a training ignores Ctrl-C, as its supervisor decides what that means.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A command that a test ran in this process sets up its log; the next test has the one of before.

    Else its lines would go to a stream that pytest has closed.
    """
    root, ours = logging.getLogger(), [logging.getLogger(n) for n in ("yanmo", "yanmo_pipelines", "__main__")]
    before, levels = set(root.handlers), [(logger, logger.level) for logger in (root, *ours)]
    yield
    for handler in set(root.handlers) - before:
        if not type(handler).__module__.startswith("_pytest"):
            root.removeHandler(handler)
    for logger, level in levels:
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def no_thread_runs_on() -> Iterator[None]:
    """A thread of ours that a test leaves behind would speak in the log of a later one."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and _is_ours(thread)]
    for thread in left:
        thread.join(10)
    assert not [thread.name for thread in left if thread.is_alive()], "threads that this test left running"


def _is_ours(thread: threading.Thread) -> bool:
    return str(getattr(getattr(thread, "_target", None), "__module__", "")).startswith("yanmo")


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest) -> s3.S3Server:
    """A real S3 server, one for all workers of this session; skips with the reason where there is none."""
    reason = s3.absent()
    if reason:
        pytest.skip(f"needs an S3 server: {reason}")
    return s3.borrow(_session(request))


def _session(request: pytest.FixtureRequest) -> str:
    workers = getattr(request.config, "workerinput", None)
    return str(workers["testrunuid"]) if workers else f"{request.config.stash.setdefault(_OWN, _uid())}"


def _uid() -> str:
    import uuid

    return uuid.uuid4().hex


_OWN = pytest.StashKey[str]()


@pytest.fixture(scope="module")
def s3_place(s3_server: s3.S3Server) -> Iterator[str]:
    """`bucket` or `bucket/prefix` of this module's own on the server; emptied and removed afterwards."""
    place = s3_server.new_bucket()
    yield place
    s3_server.remove_bucket(place)
