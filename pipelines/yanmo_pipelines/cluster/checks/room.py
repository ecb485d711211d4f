"""Whether the cluster has room for a run: nodes for each row of the table, quotas, images, GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from yanmo.common.words import plural
from yanmo_pipelines import resources
from yanmo_pipelines.cluster.checks.finding import Asked, Finding
from yanmo_pipelines.cluster.fitting import PodNeeds, no_node_holds, nodes_of, over_quota, quantity


def rows(column: str) -> list[PodNeeds]:
    """Return what the pods of each stage ask for by a column of the table."""
    from yanmo_pipelines.stages import LANGUAGE_MODEL  # 0.1 s; `yanmo doctor --help` needs no stage

    found = []
    for stage in LANGUAGE_MODEL:
        row = resources.row_of(column, stage.name)
        requests = {"cpu": quantity(row.cpu), "memory": quantity(row.memory)}
        if row.gpus not in ("", "0"):
            requests[resources.GPU] = quantity(row.gpus)
        found.append(
            PodNeeds(
                task=stage.name,
                image=resources.IMAGES[stage.image],
                requests=requests,
                node_selector=row.node_selector,
                tolerations=tuple(row.tolerations),
            )
        )
    return found


def nodes(asked: Asked) -> Iterator[Finding]:
    """Some node could hold each stage."""
    column, there = asked.options.resources, nodes_of(asked.kubernetes)
    why = {pod.task: no_node_holds(pod, there) for pod in rows(column)}
    fits = [task for task, reason in why.items() if not reason]
    for task, reason in why.items():
        if reason:
            yield Finding(
                "nodes",
                "bad",
                f"column {column}: no node can hold {task}: {reason}",
                "choose another column (--resources), give smaller requests on the form, or add a node",
            )
    if fits:
        yield Finding("nodes", "ok", f"column {column}: a node can hold {', '.join(fits)}")


def gpu(asked: Asked) -> Iterator[Finding]:
    """Nodes with GPUs that a pod can ask for."""
    there = nodes_of(asked.kubernetes)
    counts = {n["metadata"]["name"]: _allocatable(n, resources.GPU) for n in there}
    have = {name: count for name, count in counts.items() if count}
    needs = any(resources.GPU in pod.requests for pod in rows(asked.options.resources))
    if have:
        shown = ", ".join(f"{name} {count:f}" for name, count in have.items())
        yield Finding(
            "gpu", "ok", f"{len(have)} of {plural(len(there), 'node')} have {resources.GPU}: {shown}"
        )
        return
    said = f"none of {plural(len(there), 'node')} has {resources.GPU}"
    if needs:
        yield Finding(
            "gpu",
            "bad",
            f"{said}; column {asked.options.resources} asks for it",
            "install NVIDIA's device plugin on the nodes with GPUs, or choose --resources small or standard",
        )
    else:
        yield Finding("gpu", "note", f"{said}: training runs on CPUs")


def _allocatable(node: Mapping[str, Any], resource: str) -> Decimal:
    return quantity(str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")))


def quota(asked: Asked) -> Iterator[Finding]:
    """Quotas of the namespace admit each stage where nothing else runs."""
    api = asked.kubernetes
    there = list(api.listed(api.in_namespace("resourcequotas"), "list quotas"))
    if not there:
        yield Finding("quota", "ok", f"namespace {api.namespace} has no quota")
        return
    never = over_quota(rows(asked.options.resources), there)
    for problem in never:
        yield Finding("quota", "bad", problem, "ask for a larger quota, or give smaller requests on the form")
    if not never:
        names = ", ".join(one["metadata"]["name"] for one in there)
        yield Finding("quota", "ok", f"each stage fits into quota {names}")


def images(asked: Asked) -> Iterator[Finding]:
    """The images are on a node; whether others can be pulled, only a pod shows (--in-pod)."""
    held = {
        _plain(name)
        for node in nodes_of(asked.kubernetes)
        for image in (node.get("status") or {}).get("images") or []
        for name in image.get("names") or []
    }
    for name in dict.fromkeys(pod.image for pod in rows(asked.options.resources)):
        wanted = f"{asked.options.image_prefix}{name}"
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
    """A name as a node calls it, without what it adds to a short one."""
    return name.removeprefix("docker.io/").removeprefix("library/")
