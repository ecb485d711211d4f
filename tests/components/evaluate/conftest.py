import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from tiny_store import make_ground


@pytest.fixture
def ground(tmp_path):
    return make_ground(tmp_path / "store", tmp_path / "model")
