"""Nothing of this machine's: each test says whom a command asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from servers.replayed import kubeconfig, serving

from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import PlaceOptions


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KFP_ENDPOINT", "KFP_UI_ENDPOINT", "KFP_TIMEZONE", "KF_PIPELINES_SA_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("KUBERNETES_SERVICE_HOST", "YANMO_STORE", "YANMO_CHANNEL", "YANMO_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


@pytest.fixture
def cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., tuple[KubernetesApi, Any]]]:
    """A Kubernetes that answers so, and its server."""
    with ExitStack() as servers:

        def asked(recorded: list[dict[str, Any]], namespace: str = "") -> tuple[KubernetesApi, Any]:
            address, server = servers.enter_context(serving(recorded))
            monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, address))
            return KubernetesApi.of(PlaceOptions(namespace=namespace)), server

        yield asked
