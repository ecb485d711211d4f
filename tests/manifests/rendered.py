"""The manifests as kustomize renders them, and the pods in them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from yanmo_pipelines.parameters import documents_of

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
OVERLAYS = sorted(path.parent.name for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
OWN = "app.kubernetes.io/part-of"
"""Label of what is Yanmo's; the S3 server's pods have none of it."""


def kubectl() -> str:
    """The client that renders: the one of `make manifest-tools`, else any on the PATH; skips without one."""
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.is_file() else shutil.which("kubectl")
    if not found:
        pytest.skip("kubectl is not installed")
    return found


@functools.cache
def _rendered(client: str, folder: Path) -> str:
    done = subprocess.run([client, "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(overlay: str) -> list[dict[str, Any]]:
    """What the overlay consists of; `base` is the base."""
    folder = MANIFESTS / ("base" if overlay == "base" else f"overlays/{overlay}")
    return [each for each in documents_of(_rendered(kubectl(), folder)) if each]


def with_components(folder: Path, *names: str) -> list[dict[str, Any]]:
    """What an overlay consists of that has the base and these components; it is made in `folder`."""
    for name in ("base", "components"):
        shutil.copytree(MANIFESTS / name, folder / name)
    overlay = folder / "overlays/here"
    overlay.mkdir(parents=True)
    components = [f"../../components/{name}" for name in names]
    text = {"namespace": "kubeflow", "resources": ["../../base"], "components": components}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    return [each for each in documents_of(_rendered(kubectl(), overlay)) if each]


def named(overlay: str, kind: str) -> dict[str, dict[str, Any]]:
    """Name -> object, of one kind."""
    return {each["metadata"]["name"]: each for each in objects(overlay) if each["kind"] == kind}


@dataclass(frozen=True)
class PodOf:
    """A pod template, and where it stands."""

    owner: str
    """`CronJob/stage-train`."""
    job: dict[str, Any]
    """The Job's spec; {} where no Job makes the pod."""
    labels: dict[str, str]
    spec: dict[str, Any]

    @property
    def container(self) -> dict[str, Any]:
        (only,) = self.spec["containers"]
        assert isinstance(only, dict)
        return only

    @property
    def stage(self) -> str:
        """The stage that it runs; empty for none."""
        return self.labels.get("yanmo.dev/stage", "")


def check_restricted(spec: dict[str, Any]) -> None:
    """Check that a pod meets the Pod Security Standard `restricted`, with a read-only root."""
    of_pod = spec["securityContext"]
    assert of_pod["runAsNonRoot"] and of_pod.get("runAsUser", 10000) >= 10000
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def pods(overlay: str) -> list[PodOf]:
    """Every pod template of the overlay."""
    return [pod for each in objects(overlay) for pod in _pods_in(each)]


def _pods_in(each: dict[str, Any]) -> Iterator[PodOf]:
    job: dict[str, Any] = {}
    if each["kind"] == "CronJob":
        job = each["spec"]["jobTemplate"]["spec"]
    elif each["kind"] == "Job":
        job = each["spec"]
    template = job.get("template") or (each.get("spec") or {}).get("template")
    if isinstance(template, dict) and "spec" in template:
        owner = f"{each['kind']}/{each['metadata']['name']}"
        yield PodOf(owner, job, template["metadata"].get("labels", {}), template["spec"])
