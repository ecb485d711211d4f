"""What makes the pods of a training: a TrainJob of Kubeflow Trainer, or an Indexed Job with a Service.

A TrainJob keeps to what Trainer 2.0 to 2.3 read alike: number of pods, arguments and resources. All else is
in the TrainingRuntime of manifests/, whose JobSet starts all nodes again where one was lost. An Indexed Job
takes its pods from the CronJob stage-train; each of them starts again by itself, which is enough, as the
nodes of a training end together.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import EnvironmentFault
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.launch.training import Training
from yanmo_pipelines.cluster.pods import true_condition
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.launch_options import INDEXED_JOB, TRAINER, TRAINJOB, VERSION
from yanmo_pipelines.resources import GPU

_PORT = "29500"
_OF_A_LAUNCH = ("cpu", "memory", GPU)
"""What each launch says of a node, also by leaving it out."""


@dataclass(frozen=True)
class TrainJobs:
    """Kubeflow Trainer."""

    path: str
    """Where its objects are, in the namespace."""
    kind: str = "TrainJob"
    """Of the object that is followed."""
    pods: str = "jobset.sigs.k8s.io/jobset-name"
    """Label whose value is the object's name, on each of its pods."""
    resources: Mapping[str, Any] = field(default_factory=dict)
    """Of a node in the TrainingRuntime. Trainer puts what a TrainJob says in the place of all of them."""

    def objects(self, training: Training) -> list[dict[str, Any]]:
        """The TrainJob alone."""
        trainer = {
            "numNodes": training.nodes,
            # Given as a number: that is one for all versions, and 2.0 ends on a TrainJob without it.
            "numProcPerNode": training.ranks,
            "args": list(training.arguments),
            "resourcesPerNode": _resources(training, self.resources),
        }
        runtime = {"apiGroup": TRAINER, "kind": "TrainingRuntime", "name": training.runtime}
        spec = {"runtimeRef": runtime, "trainer": trainer}
        api_version = f"{TRAINER}/{VERSION}"
        return [{"apiVersion": api_version, "kind": self.kind, "metadata": _meta(training), "spec": spec}]


@dataclass(frozen=True)
class IndexedJobs:
    """Kubernetes alone."""

    template: Mapping[str, Any]
    """The CronJob whose pods they are."""
    path: str
    kind: str = "Job"
    pods: str = "batch.kubernetes.io/job-name"

    def objects(self, training: Training) -> list[dict[str, Any]]:
        """The Job, and the Service by which its pods find node 0."""
        job = copy.deepcopy(self.template["spec"]["jobTemplate"])
        spec, pod = job["spec"], job["spec"]["template"]
        pod["metadata"] = _joined(pod.get("metadata") or {}, training)
        pod["spec"] |= {"subdomain": training.name, "restartPolicy": "Never"}
        container = pod["spec"]["containers"][0]
        container["args"] = list(training.arguments)
        container["resources"] = _resources(training, container.get("resources") or {})
        container["env"] = [*_meeting(training), *_own_environment(container.get("env") or [])]
        spec |= {"completions": training.nodes, "parallelism": training.nodes, "completionMode": "Indexed"}
        meta = _joined(_meta(training), training)
        ports = [{"name": "rendezvous", "port": int(_PORT)}]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": training.name, "labels": dict(training.labels)},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {self.pods: training.name},
                "ports": ports,
            },
        }
        return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}, service]


Maker = TrainJobs | IndexedJobs
"""What a training's pods are made by."""


def state_of(found: Mapping[str, Any]) -> tuple[str, str]:
    """`Complete`, `Failed` or `Suspended` and why, of a TrainJob or a Job; "" while it runs."""
    for kind in ("Complete", "Failed", "Suspended"):
        if (one := true_condition(found, kind)) is not None:
            said = (str(one.get(name) or "") for name in ("reason", "message"))
            return kind, " ".join(said).strip()
    return ("Suspended", "") if (found.get("spec") or {}).get("suspend") else ("", "")


def maker_of(api: KubernetesApi, training: Training, by: str) -> Maker:
    """Return what this cluster has for it.

    Args:
        by: `auto`, `trainjob` or `job`.

    Raises:
        EnvironmentFault: it has it not, in another version, or without our manifests.
    """
    if by != INDEXED_JOB and _has_trainer(api, must=by == TRAINJOB):
        group = f"apis/{TRAINER}/{VERSION}"
        what = f"TrainingRuntime {training.runtime}"
        mend = "apply an overlay with the component launch of manifests/ there, or give --runtime"
        where = api.in_namespace("trainingruntimes", training.runtime, group=group)
        runtime = _must_be_there(api, where, what, mend)
        return TrainJobs(api.in_namespace("trainjobs", group=group), resources=resources_of(runtime))
    path = api.in_namespace("cronjobs", "stage-train", group="apis/batch/v1")
    mend = "apply manifests/ there (kubectl apply -k manifests/overlays/small)"
    template = _must_be_there(api, path, "CronJob stage-train", mend)
    return IndexedJobs(template, api.in_namespace("jobs", group="apis/batch/v1"))


def _has_trainer(api: KubernetesApi, *, must: bool) -> bool:
    """Return whether Trainer serves the version that we speak.

    Raises:
        EnvironmentFault: another version; or none where there has to be one.
    """
    other = "`--by job` does without it"
    try:
        group = api.get(f"/apis/{TRAINER}", "ask for Trainer's versions")
    except NotFound:
        if must:
            raise EnvironmentFault(f"Kubeflow Trainer is not installed in this cluster; {other}") from None
        return False
    served = [str(one.get("version")) for one in group.get("versions") or []]
    if VERSION not in served:
        raise EnvironmentFault(
            f"Kubeflow Trainer serves {', '.join(served) or 'nothing'} here, and this Yanmo speaks {VERSION} "
            f"(Trainer 2.0 to 2.3); {other}"
        )
    return True


def _must_be_there(api: KubernetesApi, path: str, what: str, mend: str) -> dict[str, Any]:
    try:
        return api.get(path, f"read {what}")
    except NotFound:
        raise EnvironmentFault(f"there is no {what} in namespace {api.namespace}: {mend}") from None


def resources_of(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a node of a TrainingRuntime: of the container that Trainer takes for it."""
    for job in runtime["spec"]["template"]["spec"].get("replicatedJobs") or []:
        for container in job["template"]["spec"]["template"]["spec"].get("containers") or []:
            if container["name"] == "node":
                return container.get("resources") or {}
    return {}


def _resources(training: Training, of_template: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Of a node: CPU, memory and GPUs as the launch says, all else, such as RDMA, as in the template."""
    found = dict[str, dict[str, str]]()
    for kind in ("requests", "limits"):
        given = of_template.get(kind) or {}
        kept = {name: str(amount) for name, amount in given.items() if name not in _OF_A_LAUNCH}
        found[kind] = {**training.resources, **kept}
    return found


def _meta(training: Training) -> dict[str, Any]:
    return {
        "name": training.name,
        "labels": dict(training.labels),
        "annotations": dict(training.annotations),
        **({"ownerReferences": [dict(owner) for owner in training.owners]} if training.owners else {}),
    }


def _joined(meta: Mapping[str, Any], training: Training) -> dict[str, Any]:
    return {**meta, "labels": {**(meta.get("labels") or {}), **training.labels}}


def _meeting(training: Training) -> list[dict[str, Any]]:
    """Return how the nodes find each other, in torchrun's words."""
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        {"name": "PET_NNODES", "value": str(training.nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": str(training.ranks)},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "PET_MASTER_ADDR", "value": f"{training.name}-0.{training.name}"},
        {"name": "PET_MASTER_PORT", "value": _PORT},
    ]


def _own_environment(env: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The template's, without what the arguments say."""
    said = ("YANMO_INPUTS", "YANMO_OPTIONS", "YANMO_RUN_ID")
    return [one for one in env if one["name"] not in said]
