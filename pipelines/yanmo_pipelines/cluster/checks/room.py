"""What the nodes have for a run: GPUs, images. Whether a pod finds a node, the scheduler says of the pod."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yanmo.common.words import plural
from yanmo_pipelines import resources
from yanmo_pipelines.cluster.checks.finding import Asked, Finding


def _nodes_of(asked: Asked) -> list[dict[str, Any]]:
    return list(asked.kubernetes.listed("/api/v1/nodes", "list nodes"))


def gpu(asked: Asked) -> Iterator[Finding]:
    """Nodes with GPUs that a pod can ask for."""
    there, column = _nodes_of(asked), asked.options.resources
    counts = {
        node["metadata"]["name"]: int((node["status"].get("allocatable") or {}).get(resources.GPU, 0))
        for node in there
    }
    if have := {name: count for name, count in counts.items() if count}:
        shown = ", ".join(f"{name} {count}" for name, count in have.items())
        yield Finding(
            "gpu", "ok", f"{len(have)} of {plural(len(there), 'node')} have {resources.GPU}: {shown}"
        )
        return
    said = f"none of {plural(len(there), 'node')} has {resources.GPU}"
    if resources.row_of(column, "train").gpus in ("", "0"):
        yield Finding("gpu", "note", f"{said}: training runs on CPUs")
    else:
        yield Finding(
            "gpu",
            "bad",
            f"{said}; column {column} asks for it",
            "install NVIDIA's device plugin on the nodes with GPUs, or choose --resources small or standard",
        )


def images(asked: Asked) -> Iterator[Finding]:
    """Every image is on a node; whether one that is not can be pulled, only a pod shows (--in-pod)."""
    held = {
        _plain(name)
        for node in _nodes_of(asked)
        for image in node["status"].get("images") or []
        for name in image.get("names") or []
    }
    for wanted in asked.options.images.values():
        if _plain(wanted) in held:
            yield Finding("images", "ok", f"{wanted} is on a node")
        else:
            yield Finding(
                "images",
                "note",
                f"{wanted} is on no node (of the 50 largest images that each tells of): it must be pulled",
                "push it to a registry that the nodes reach and give --image-prefix, or load it into the "
                "nodes; --in-pod tries a pull of the cluster's image",
            )


def _plain(name: str) -> str:
    """Return a name as a node calls it, without what it adds to a short one."""
    return name.removeprefix("docker.io/").removeprefix("library/")
