"""What each task may use in a cluster: the only table of images, CPU, memory, GPUs and secrets.

The rows are for a small node and a corpus like the bundled one; a pod that needs more is stopped by
Kubernetes with its reason, so raise the row and compile again (what training and evaluation may use is on
the run form). Local runs ignore all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kfp import kubernetes

IMAGES = {"data": "yanmo-data:0.1.0", "train": "yanmo-train:0.1.0"}
"""Image name of `Stage.image`; `yanmo compile --image-prefix` puts a registry before it."""

METRICS_PORT = 9464
"""Where a pod serves /metrics (the OpenTelemetry convention for Prometheus exporters)."""

SECRETS = {
    "yanmo-store": "/etc/yanmo/store",
    "mlpipeline-minio-artifact": "/etc/yanmo/mlpipeline-minio-artifact",
}
"""Kubernetes Secret -> where its files are mounted; stages look there (store/s3/credentials.py).
The first is ours: access_key_id, secret_access_key, session_token, endpoint_url, region, each optional. The
second is KFP's own. Files and not variables, so that a rotated Secret reaches a running pod."""
SCRATCH = "/scratch"
"""Where the images keep work and cached inputs (YANMO_SCRATCH); the node's own disk."""

# Retries: KFP gives up one hour after the FIRST attempt began unless the longest backoff is set, so
# that a training pod which dies after 61 minutes would never be retried (structures.py of its SDK
# writes 3600 s; Argo counts it from the start of the first attempt). Two weeks instead.
# The first backoff is short: Argo waits it out also before it says that a failure is not retried.
_RETRIES = {"num_retries": 3, "backoff_duration": "5s", "backoff_factor": 3.0}
_LONGEST_BACKOFF = "1209600s"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Requests equal limits, so that a pod is never evicted for using what it was promised."""

    cpu: str
    """Cores."""
    memory: str
    shared_memory: str = ""
    """Size of /dev/shm, counted against `memory`; torch's workers exchange tensors there, and a
    container's default of 64 MB ends in a bus error."""


TABLE = {
    "resolve": Resources(cpu="500m", memory="512Mi"),
    "curate": Resources(cpu="1", memory="2Gi"),
    "balance": Resources(cpu="1", memory="2Gi"),
    "tokenize": Resources(cpu="1", memory="2Gi"),
    "train": Resources(cpu="1", memory="3Gi", shared_memory="1Gi"),
    "evaluate": Resources(cpu="1", memory="3Gi"),
    "promote": Resources(cpu="500m", memory="1Gi"),
}
_SMALL = Resources(cpu="1", memory="2Gi")


def apply(task: Any, stage: str, *, cpu: Any = None, memory: Any = None, gpus: Any = None) -> Any:
    """Give `task` of `stage` its row of the table, the secret, retries, and no cache of KFP's.

    Args:
        cpu, memory: a pipeline parameter of type str in the place of the row's.
        gpus: GPUs of the pod, digits or a pipeline parameter of type str; None for a stage that uses none.
            KFP's driver (2.17.0) takes a number's limit for "" and drops it, "" likewise; "0" becomes a limit
            of 0, which runs without a device plugin. (Of a CPU or memory limit "" would end the run.)
    """
    row = TABLE.get(stage, _SMALL)
    task.set_caching_options(False)  # the store is the only cache, and it knows about inputs' bytes
    task.set_retry(backoff_max_duration=_LONGEST_BACKOFF, **_RETRIES)
    cores, memory = row.cpu if cpu is None else cpu, row.memory if memory is None else memory
    task.set_cpu_request(cores).set_cpu_limit(cores)
    task.set_memory_request(memory).set_memory_limit(memory)
    if gpus is not None:
        task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(gpus)
    for secret, folder in SECRETS.items():
        kubernetes.use_secret_as_volume(task, secret, mount_path=folder, optional=True)
    kubernetes.empty_dir_mount(task, volume_name="scratch", mount_path=SCRATCH)
    if row.shared_memory:
        kubernetes.empty_dir_mount(
            task,
            volume_name="shared-memory",
            mount_path="/dev/shm",
            medium="Memory",
            size_limit=row.shared_memory,
        )
    return task
