"""A small real store for the tools: raw text -> documents -> cache -> two models, pointers and a history."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from servers.s3 import S3Server

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from ground import Ground

from yanmo.store.objects import ObjectStore
from yanmo.store.opening import open_store


@pytest.fixture(params=["file", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where an empty store is, on a folder and on a real S3 server."""
    if request.param == "file":
        return str(tmp_path / "store")
    server: S3Server = request.getfixturevalue("s3_server")
    place: str = request.getfixturevalue("s3_place")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    return f"s3://{place}/{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}"


@pytest.fixture
def opened(uri: str) -> Callable[[], ObjectStore]:
    """Opens the store, each time as a process of its own would."""
    return lambda: open_store(uri)


@pytest.fixture
def ground(uri: str) -> Ground:
    return Ground(uri)


@pytest.fixture
def folder_ground(tmp_path: Path) -> Ground:
    return Ground(str(tmp_path / "folder"))
