"""A store with evaluations made by hand: what promote reads, without training anything."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from by_hand import Stage

from yanmo.store.opening import open_store


@pytest.fixture(scope="session")
def new_stage(tmp_path_factory):
    """Makes a stage on an empty store, for what several tests look at and none changes."""

    def make():
        folder = tmp_path_factory.mktemp("made") / "store"
        return Stage(open_store(str(folder)), folder)

    return make


@pytest.fixture
def stage(tmp_path, caplog):
    caplog.set_level("INFO", logger="yanmo")
    return Stage(open_store(str(tmp_path / "store")), tmp_path / "store")


@pytest.fixture
def judged(stage):
    """A channel whose second model was just promoted."""
    stage.evaluate(stage.model(1), 8.0)
    stage.promote()
    stage.evaluate(stage.model(2), 7.8)
    stage.promote()
    return stage
