"""What `yanmo doctor` looks at: whether KFP and Kubernetes answer, know us and let us do what the commands
need, what pods find there (Secrets, GPUs), and a round trip through the store's bucket.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from yanmo.common.errors import DataError, UsageError
from yanmo.common.words import plural
from yanmo.store.opening import default_store, store_of
from yanmo_pipelines import resources
from yanmo_pipelines.cluster.kfp_api import KfpApi
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi, NoCluster
from yanmo_pipelines.cluster.refusals import Forbidden, NotFound

State = Literal["ok", "note", "left", "unasked", "away", "bad"]
"""In rising order. ok: as it should be. note: worth knowing, nothing is broken. left: not asked for.
unasked: it may not be asked, so nobody knows. away: who should answer does not, now. bad: to be mended."""
EXIT_CODES: dict[State, int] = {"ok": 0, "note": 0, "left": 0, "unasked": 77, "away": 75, "bad": 78}
"""What doctor ends with, by its worst finding. 77 is sysexits' "no permission"."""


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    check: str
    state: State
    said: str
    remedy: str = ""
    """What to do, where there is something to do."""

    def as_json(self) -> dict[str, str | int]:
        return {**vars(self), "exit_code": EXIT_CODES[self.state]}


@dataclass(frozen=True)
class Asked:
    """Whom a check asks, and about what."""

    options: Any
    """DoctorOptions."""

    @functools.cached_property
    def kubernetes(self) -> KubernetesApi:
        """Raises as `KubernetesApi.of`."""
        return KubernetesApi.of(self.options)

    @functools.cached_property
    def kfp(self) -> KfpApi:
        """Raises as `KfpApi`."""
        try:
            return KfpApi(self.options, self.kubernetes)
        except NoCluster:
            return KfpApi(self.options)


NEEDED = (
    ("create", "jobs", "batch", "rerun"),
    ("get", "cronjobs", "batch", "rerun"),
    ("list", "pods", "", "status"),
    ("list", "jobs", "batch", "status"),
    ("list", "events", "", "status"),
    ("list", "workflows", "argoproj.io", "submit"),
)
"""Verb, resource, group, and the commands that need it."""
_OWN_KEYS = (("access_key_id", "accesskey"), ("secret_access_key", "secretkey"))
_KFPS_KEYS = (("accesskey",), ("secretkey",))
"""What the two Secrets must hold; of each group one name (store/s3/credentials.py)."""
_KFPS = list(resources.SECRETS)[1]
_KFP_BUCKET = "minio://mlpipeline"
"""Where runs keep what they make, in a pod that has KFP's Secret and no other."""
_MAKE = (
    "kubectl create secret generic {} --from-literal=access_key_id=... "
    "--from-literal=secret_access_key=... --from-literal=endpoint_url=http://... "
    "--from-literal=store=s3://bucket/prefix"
)


def kfp(asked: Asked) -> Iterator[Finding]:
    """KFP's API answers."""
    health = asked.kfp.health()
    users = "several users" if health.get("multi_user") else "one user"
    version = health.get("tag_name") or "unknown"
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
            "nodes may not be listed: nobody looks for GPUs",
            "ask for a ClusterRole with get and list of nodes, or let an administrator run doctor",
        )


def secrets(asked: Asked) -> Iterator[Finding]:
    """The pods of a run find credentials for the store."""
    own, make = asked.options.store_secret, _MAKE.format(asked.options.store_secret)
    found = {name: _secret(asked, name) for name in (own, _KFPS)}
    where = f"in namespace {asked.kubernetes.namespace}"
    for name, names in found.items():
        if names is None:
            continue
        keys = _OWN_KEYS if name == own else _KFPS_KEYS
        missing = [" or ".join(group) for group in keys if not set(group) & names]
        if missing and not (name == own and not names & {n for g in keys for n in g}):
            yield Finding("secrets", "bad", f"Secret {name} {where} lacks {', '.join(missing)}", make)
        else:
            yield Finding("secrets", "ok", f"Secret {name} {where} holds {', '.join(sorted(names))}")
    if found[own] is None:
        if found[_KFPS] is None:
            said = f"neither Secret {own} nor KFP's {_KFPS} is {where}: pods have no credentials"
            yield Finding("secrets", "bad", said, make)
        else:
            yield Finding("secrets", "note", f"no Secret {own} {where}: runs use KFP's own bucket")


def _secret(asked: Asked, name: str) -> set[str] | None:
    """The names of a Secret's files; None where there is none."""
    path = asked.kubernetes.in_namespace("secrets", name)
    try:
        found = asked.kubernetes.get(path, f"look at Secret {name}")
    except NotFound:
        return None
    return set(found.get("data") or {})


def store(asked: Asked) -> Iterator[Finding]:
    """An object goes to the bucket and back; the store itself refuses a server that ignores conditions."""
    try:
        in_pod = Path(resources.SECRETS[_KFPS]).is_dir()
        uri = asked.options.store or default_store(_KFP_BUCKET if in_pod else "")
    except UsageError:
        said = "where the store is is not known here: its bucket was not tried"
        remedy = "give --store; from within the cluster the first task of a run tries it"
        yield Finding("store", "left", said, remedy)
        return
    place, name, text = store_of(asked.options, uri), f"probes/doctor-{uuid.uuid4().hex}", "墨".encode()
    place.create(name, text)
    try:
        if place.read(name)[0] != text:
            raise DataError(
                f"{place.uri}: expected the {plural(len(text), 'byte')} that were written, read others: what "
                "is between here and the server changes them"
            )
    finally:
        place.delete(name)
    yield Finding("store", "ok", f"{place.uri}: written, read, removed; conditional writes are honoured")


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
    """Every image is on a node; whether one that is not can be pulled, a run's first task shows."""
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
                "push it to a registry that the nodes reach and give --image-prefix, or load it into "
                "the nodes",
            )


def _plain(name: str) -> str:
    """Return a name as a node calls it, without what it adds to a short one."""
    return name.removeprefix("docker.io/").removeprefix("library/")


Check = Callable[[Asked], Iterator[Finding]]
CHECKS: dict[str, Check] = {
    "kfp": kfp,
    "auth": auth,
    "kubernetes": kubernetes,
    "rights": rights,
    "secrets": secrets,
    "store": store,
    "gpu": gpu,
    "images": images,
}
