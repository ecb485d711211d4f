"""Models in folders, with the tokenizers that `yanmo tokenize` makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from saying import random_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights."""
    return random_model(tmp_path_factory.mktemp("random") / "model")
