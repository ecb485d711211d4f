"""A store in a temporary folder, and small real outputs in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from toy_outputs import recipe, write_text

from yanmo.store.commit import commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.output import Output

ROOT = Path(__file__).parents[2]
WRITER = Path(__file__).parent / "writer_process.py"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


@pytest.fixture
def output(store: FileStore) -> Output:
    made = commit_once(store, recipe(), write_text("春江潮水连海平"))
    assert made is not None
    return made


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts writer_process.py on the store; what is left of it is killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(WRITER), str(tmp_path / "store"), *args]
        env = {"PYTHONPATH": str(ROOT / "components")}
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
