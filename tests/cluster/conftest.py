"""Any cluster with Kubeflow Pipelines: KUBECONFIG and KFP_ENDPOINT name it, `make test-cluster` uses it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out

from jobs import OVERLAY
from real_cluster import RealCluster, absent

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[RealCluster]:
    """The cluster; skips with a reason where there is none, or where nobody asked for it."""
    if "cluster" not in request.config.option.markexpr:  # a shell may have KUBECONFIG set for other work
        pytest.skip("needs a cluster: make test-cluster")
    if reason := absent():
        pytest.skip(f"needs a cluster: {reason}")
    found = RealCluster()
    yield found
    found.clean()


@pytest.fixture(scope="session")
def pipeline(cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The language-model pipeline of this checkout."""
    from yanmo_pipelines.compile import compile_pipeline, load_pipeline

    path = tmp_path_factory.mktemp("compiled") / "language_model.yaml"
    compile_pipeline(load_pipeline("language_model"), path, cluster.image_prefix)
    return path


@pytest.fixture(scope="session")
def templates(cluster: RealCluster) -> None:
    """The CronJobs as this checkout has them."""
    if cluster.image_prefix:
        pytest.skip("needs a cluster whose images have plain names, as in manifests/overlays/small")
    cluster.kubectl("apply", f"--kustomize={OVERLAY}")
    done = subprocess.run(["kubectl", "diff", f"--kustomize={OVERLAY}"], capture_output=True, text=True)
    assert done.returncode == 0, f"applied, and not as it is written: {done.stdout}{done.stderr}"
