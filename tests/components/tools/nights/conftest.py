"""A store whose nights the tools show, on a folder and on a real S3 server; no chat hears of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from servers.s3 import S3Server

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from told import Told

from yanmo.nights.settings import VARIABLES


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable, _ in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("YANMO_S3_SECRET_DIR", str(tmp_path / "no-secret"))


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(str(tmp_path / "store"))


@pytest.fixture
def on_s3(s3_server: S3Server, s3_place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("YANMO_SCRATCH", str(tmp_path / "scratch"))
    return Told(f"s3://{s3_place}/{tmp_path.name}")
