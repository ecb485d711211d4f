"""A store for `yanmo runs`: on a folder, and on a real S3 server."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from servers.s3 import S3Server

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out
sys.path.insert(0, str(Path(__file__).parents[1] / "store"))  # ground

from lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(str(tmp_path / "store"))


@pytest.fixture
def s3_lab(s3_server: S3Server, s3_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    return Lab(f"s3://{s3_place}/{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}")
