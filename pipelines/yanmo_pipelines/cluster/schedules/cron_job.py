"""A schedule as a CronJob of Kubernetes' whose pod submits the run: its clock has a time zone of its own.

The pod runs `yanmo submit --detach --once`: where it was started twice, or its answer was lost, the run that
KFP has under the Job's name is not made again. So a Job is over in seconds, and `concurrencyPolicy: Forbid`
alone would not keep two nights apart: that the training of a channel does by itself (`--when-busy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.options.fields import flag, names_of
from yanmo_pipelines import resources
from yanmo_pipelines.cluster.kubernetes_api import KubernetesApi
from yanmo_pipelines.cluster.place import IN_CLUSTER, KFP_TOKEN
from yanmo_pipelines.cluster.refusals import NotFound
from yanmo_pipelines.cluster.schedules.difference import Difference, flattened, lines_of
from yanmo_pipelines.cluster.schedules.file import Schedule
from yanmo_pipelines.pod_options import PodOptions

WHAT = "CronJob"
MANAGER = "yanmo-schedule"
_NAMES = {"app.kubernetes.io/name": "yanmo", "app.kubernetes.io/part-of": "yanmo"}
_OURS = {**_NAMES, "app.kubernetes.io/component": "schedule", "app.kubernetes.io/managed-by": MANAGER}
_AUDIENCE = "pipelines.kubeflow.org"
_AS_SUBMITTED = PodOptions()
_LATE_SECONDS = 3600


class CronJobs:
    """The CronJobs of one namespace that schedules made."""

    def __init__(self, kubernetes: KubernetesApi) -> None:
        self._kubernetes = kubernetes

    def found(self, name: str) -> dict[str, Any] | None:
        """That of a schedule.

        Raises:
            UsageError: it is somebody else's.
        """
        try:
            found = self._kubernetes.get(self._path(name), f"read CronJob {called(name)}")
        except NotFound:
            return None
        if (found["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") != MANAGER:
            raise UsageError(
                f"CronJob {called(name)} of namespace {self._kubernetes.namespace} was not made by `yanmo "
                "schedule`; give the schedule another name, or delete that CronJob"
            )
        return found

    def names(self) -> set[str]:
        """All schedules that have one."""
        selector = f"app.kubernetes.io/managed-by={MANAGER}"
        found = self._kubernetes.listed(self._path(""), "list CronJobs", labelSelector=selector)
        return {str(each["metadata"]["labels"].get("yanmo.dev/schedule", "")) for each in found}

    def difference(self, schedule: Schedule) -> Difference:
        """What an apply would change, as the API server says it."""
        now = self.found(schedule.name)
        wanted = self._applied(schedule, only_try=True)
        return Difference(WHAT, lines_of(_compared(now) if now else {}, _compared(wanted)))

    def apply(self, schedule: Schedule) -> str:
        """Make it so; says what was done."""
        now = self.found(schedule.name)
        made = self._applied(schedule)
        if now is None:
            return f"made: {WHAT} {called(schedule.name)}"
        same = made["metadata"].get("generation") == now["metadata"].get("generation")
        return f"{'unchanged' if same else 'changed'}: {WHAT} {called(schedule.name)}"

    def delete(self, name: str) -> int:
        """Delete that of a schedule, if there is one; Jobs that go on go on."""
        if self.found(name) is None:
            return 0
        self._kubernetes.delete(self._path(name), f"delete CronJob {called(name)}", dependents="Orphan")
        return 1

    def _applied(self, schedule: Schedule, *, only_try: bool = False) -> dict[str, Any]:
        body = manifest(schedule, self._kubernetes.namespace)
        asked = f"apply CronJob {called(schedule.name)}"
        return self._kubernetes.apply(self._path(schedule.name), asked, body, MANAGER, only_try=only_try)

    def _path(self, name: str) -> str:
        return self._kubernetes.in_namespace("cronjobs", called(name) if name else "", group="apis/batch/v1")


def called(name: str) -> str:
    """The CronJob of a schedule."""
    return f"yanmo-{name}"


def _compared(cron_job: Mapping[str, Any]) -> dict[str, Any]:
    labels = cron_job["metadata"].get("labels") or {}
    return flattened({"labels": labels, "spec": cron_job["spec"]})


def manifest(schedule: Schedule, namespace: str) -> dict[str, Any]:
    """The CronJob of a schedule; security, volumes and the end of a Job are as in manifests/base."""
    options, labels = schedule.options, {**_OURS, "yanmo.dev/schedule": schedule.name}
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": "yanmo-operator",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(schedule, namespace)],
        "volumes": [
            {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
            {"name": "kfp-token", "projected": {"sources": [{"serviceAccountToken": _TOKEN}]}},
        ],
    }
    job = {
        "backoffLimit": 4,
        "activeDeadlineSeconds": 1800,
        "ttlSecondsAfterFinished": 604800,
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [64, 65, 78]}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "template": {"metadata": {"labels": {**labels, "sidecar.istio.io/inject": "false"}}, "spec": pod},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": called(schedule.name), "namespace": namespace, "labels": labels},
        "spec": {
            "schedule": " ".join(schedule.cron.fields[1:]),
            "timeZone": "Etc/UTC" if options.timezone == "UTC" else options.timezone,
            "suspend": options.suspend,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": _LATE_SECONDS,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"metadata": {"labels": labels}, "spec": job},
        },
    }


_TOKEN = {"audience": _AUDIENCE, "expirationSeconds": 7200, "path": KFP_TOKEN.name}


def _container(schedule: Schedule, namespace: str) -> dict[str, Any]:
    return {
        "name": "submit",
        "image": schedule.options.image_prefix + resources.IMAGES["cluster"],
        "imagePullPolicy": "IfNotPresent",
        "args": submit_flags(schedule, namespace),
        "env": [{"name": "YANMO_JOB", "valueFrom": {"fieldRef": {"fieldPath": _JOB_OF_POD}}}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {
            "requests": {"cpu": "100m", "memory": "512Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "kfp-token", "mountPath": str(KFP_TOKEN.parent), "readOnly": True},
        ],
    }


_JOB_OF_POD = "metadata.labels['batch.kubernetes.io/job-name']"


def submit_flags(schedule: Schedule, namespace: str) -> list[str]:
    """The command line of the pod: `yanmo submit ...`."""
    options = schedule.options
    given = {
        "host": options.host or IN_CLUSTER,
        "namespace": namespace,
        "name": "$(YANMO_JOB)",
        "pipeline": options.pipeline,
        "channel": options.channel,
        "experiment": options.experiment,
        "store": options.store,
        "service_account": options.service_account,
    }
    given |= {
        name: getattr(options, name)
        for name in names_of(PodOptions)
        if getattr(options, name) != getattr(_AS_SUBMITTED, name)
    }
    flags = [f"{flag(name)}={value}" for name, value in given.items() if value]
    settings = [f"--set={name}={value}" for name, value in schedule.settings.items()]
    return ["submit", "--detach", "--once", *flags, *settings]
