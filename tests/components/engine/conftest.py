from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.ray import RayCluster

sys.path.insert(0, str(Path(__file__).parent))  # asked_of_nodes


@pytest.fixture(scope="package")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A cluster of two nodes, one CPU each."""
    with RayCluster(tmp_path_factory.mktemp("ray"), 2, [Path(__file__).parent]) as cluster:
        before = dict(os.environ)
        os.environ.update({n: v for n, v in cluster.environment.items() if n.startswith("RAY_")})
        yield cluster
        os.environ.clear()
        os.environ.update(before)
