"""A store for `yanmo runs`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out
sys.path.insert(0, str(Path(__file__).parents[1] / "store"))  # ground

from lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(str(tmp_path / "store"))
