"""Nodes that train in a store of the test."""

from __future__ import annotations

from pathlib import Path

import pytest
from several_nodes import Nodes


@pytest.fixture
def nodes(store, tiny, tmp_path):
    """Makes `Nodes` of a store; they are killed afterwards."""
    made = []

    def make(nnodes: int, where: Path | str = store, site: str = "", **changes: object) -> Nodes:
        made.append(Nodes(where, {**tiny, **changes}, nnodes, tmp_path / "scratch", site))
        return made[-1]

    yield make
    for one in made:
        one.kill()
