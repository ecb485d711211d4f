"""What tests of every room may ask for: a real S3 server, and a bucket on it."""

from __future__ import annotations

import os
import sys
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
