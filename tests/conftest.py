"""What tests of every room may ask for: a real S3 server, and a bucket on it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from servers import s3
from skips import summary

# A machine may be busy: no limits of time. CI draws the same examples every time, as hypothesis does there by
# itself: its verdict is about the commit. `make test` draws new ones; what it finds becomes an example.
hypothesis.settings.register_profile("yanmo", deadline=None)
hypothesis.settings.register_profile("yanmo-ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("yanmo-ci" if os.environ.get("CI") else "yanmo")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out and why, also with -q."""
    skipped = [r.longrepr for r in terminalreporter.stats.get("skipped", [])]
    for line in summary(r[2] if isinstance(r, tuple) else str(r) for r in skipped):
        terminalreporter.write_line(line)


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
