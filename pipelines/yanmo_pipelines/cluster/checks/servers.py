"""Whether KFP and Kubernetes answer, know us, and let us do what the commands need."""

from __future__ import annotations

from collections.abc import Iterator

from yanmo_pipelines.cluster.checks.finding import Asked, Finding
from yanmo_pipelines.cluster.refusals import Forbidden, NotFound

NEEDED = (
    ("create", "jobs", "batch", "rerun"),
    ("get", "cronjobs", "batch", "rerun"),
    ("list", "pods", "", "status"),
    ("get", "pods/log", "", "doctor"),
    ("list", "jobs", "batch", "status"),
    ("list", "events", "", "status"),
    ("list", "workflows", "argoproj.io", "submit"),
)
"""Verb, resource, group, and the commands that need it."""


def kfp(asked: Asked) -> Iterator[Finding]:
    """KFP's API answers."""
    health = asked.kfp.health()
    version = health.get("tag_name") or "unknown"
    users = "several users" if health.get("multi_user") else "one user"
    named = f"version {version}" if version != "unknown" else "of a version that it does not say"
    yield Finding("kfp", "ok", f"{asked.kfp.address} answers: KFP {named}, {users}")


def auth(asked: Asked) -> Iterator[Finding]:
    """KFP knows us, and lets us see runs."""
    asked.kfp.runs(1)
    where = f" of namespace {asked.kfp.namespace}" if asked.kfp.namespace else ""
    yield Finding("auth", "ok", f"runs{where} may be listed")


def kubernetes(asked: Asked) -> Iterator[Finding]:
    """Kubernetes' API answers, and the namespace is there."""
    api = asked.kubernetes
    version = api.get("/version", "ask for its version").get("gitVersion", "of unknown version")
    yield Finding("kubernetes", "ok", f"{api.address} answers: Kubernetes {version}")
    try:
        api.get(f"/api/v1/namespaces/{api.namespace}", f"read namespace {api.namespace}")
    except Forbidden:
        pass  # who has rights in a namespace alone may not read it; `rights` says whether these suffice
    except NotFound:
        yield Finding(
            "kubernetes",
            "bad",
            f"there is no namespace {api.namespace}",
            "give --namespace, or make it: kubectl create namespace " + api.namespace,
        )


def rights(asked: Asked) -> Iterator[Finding]:
    """We may do what submit, rerun, status and doctor need."""
    missing = [
        f"{verb} {resource} ({commands})"
        for verb, resource, group, commands in NEEDED
        if not asked.kubernetes.may(verb, resource, group=group)
    ]
    where = f"in namespace {asked.kubernetes.namespace}"
    if missing:
        yield Finding(
            "rights",
            "bad",
            f"{where} we may not {'; '.join(missing)}",
            "bind the role yanmo-operator of manifests/base to this user or service account",
        )
    else:
        yield Finding("rights", "ok", f"{where} we may do what submit, rerun, status and doctor need")
    if not asked.kubernetes.may("list", "nodes", namespace=""):
        yield Finding(
            "rights",
            "note",
            "nodes may not be listed: nobody looks for GPUs and images",
            "ask for a ClusterRole with get and list of nodes, or let an administrator run doctor",
        )
