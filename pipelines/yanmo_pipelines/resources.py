"""What each task may use in a cluster: the only table of images, CPU, memory, GPUs and secrets.

It has a column for each kind of cluster (`COLUMNS`); `yanmo compile --resources` and `yanmo submit` choose
one. The committed YAML is `small`. What training and evaluation may use is also on the run form, whose
defaults are the column's. A pod that needs more is stopped by Kubernetes with its reason. Local runs ignore
all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from yanmo.common.names import DATA_STAGES

IMAGES = {"data": "yanmo-data:0.2.0", "train": "yanmo-train:0.2.0", "cluster": "yanmo-cluster:0.2.0"}
"""Image name of `Stage.image`; `yanmo compile --image-prefix` puts a registry before it."""
_WITH_RAY = "yanmo-data-ray:0.2.0"
"""Has what the image of the data stages has, and Ray."""

METRICS_PORT = 9464
"""Where a pod serves /metrics (the OpenTelemetry convention for Prometheus exporters)."""

STORE_SECRET = "yanmo-store"
"""The Secret that names the store and holds its credentials; `--store-secret` compiles another."""
SECRETS = {
    STORE_SECRET: "/etc/yanmo/store",
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
# Short and all alike: Argo waits one out also before it says that a failure is not retried, and where it
# retries failures, three of them stand between a wrong value and the red run. What takes time to mend (the
# store, another's lease) the stage waits out itself.
_RETRIES = {"num_retries": 3, "backoff_duration": "5s", "backoff_factor": 1.0}
_LONGEST_BACKOFF = "1209600s"

IN_PODS = {
    "YANMO_WAIT_SECONDS": "21600",
    "YANMO_METRICS_ADDRESS": "all",
    "YANMO_METRICS_WAIT_SECONDS": "20",
}
"""Variables of every pod. Longest wait for the store, or for another run of the same output, with all that
it holds: six hours. Where Argo retries errors only, as KFP 2.17 ships it, nobody tries a stage again that
ended with 75. /metrics is on all addresses, as who may scrape is a NetworkPolicy's business, and waits at the
end for one more scrape, 20 s at most and only where there were some."""


RAY_SECRET, RAY_FOLDER = "yanmo-ray", "/etc/yanmo/ray"
"""The Secret with the token of the Ray cluster (manifests/components/ray), and where it is mounted."""
RAY_VARIABLES = {
    "RAY_ADDRESS": "ray://yanmo-head-svc:10001",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN_PATH": f"{RAY_FOLDER}/auth_token",
}
"""By what a stage finds that cluster, in its own namespace; read with `--engine ray` alone."""
ON_RAY = DATA_STAGES
"""Stages that have an `--engine`."""
OF_ONE_STAGE = {"launch": {"YANMO_WAIT_SECONDS": "1209600"}, **dict.fromkeys(ON_RAY, RAY_VARIABLES)}
"""Stage -> more variables of its pods: a launcher waits two weeks, as it holds no GPU."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Of one pod. Requests equal limits, so that a pod is never evicted for using what it was promised."""

    cpu: str
    """Cores."""
    memory: str
    shared_memory: str = ""
    """Size of /dev/shm, counted against `memory`; NCCL and torch's processes exchange tensors there, and a
    container's default of 64 MB ends in a bus error."""
    gpus: str = "0"
    """Digits; "" for a pod that never has one."""


GPU = "nvidia.com/gpu"
"""Kubernetes' name of what a pod asks for."""
_LITTLE = Resources(cpu="500m", memory="512Mi", gpus="")
_WATCHES = Resources(cpu="250m", memory="512Mi", gpus="")

SMALL = "small"
COLUMNS: dict[str, dict[str, Resources]] = {
    SMALL: {
        "resolve": _LITTLE,
        "launch": _WATCHES,
        **dict.fromkeys(DATA_STAGES, Resources(cpu="1", memory="2Gi", gpus="")),
        "train": Resources(cpu="1", memory="3Gi", shared_memory="1Gi"),
        "evaluate": Resources(cpu="1", memory="3Gi"),
        "promote": Resources(cpu="500m", memory="1Gi", gpus=""),
    },
    "standard": {
        "resolve": _LITTLE,
        "launch": _WATCHES,
        **dict.fromkeys(DATA_STAGES, Resources(cpu="4", memory="8Gi", gpus="")),
        "train": Resources(cpu="4", memory="16Gi", shared_memory="2Gi"),
        "evaluate": Resources(cpu="4", memory="16Gi", shared_memory="2Gi"),
        "promote": Resources(cpu="1", memory="2Gi", gpus=""),
    },
    "gpu": {
        "resolve": _LITTLE,
        "launch": _WATCHES,
        **dict.fromkeys(DATA_STAGES, Resources(cpu="8", memory="16Gi", gpus="")),
        "train": Resources(cpu="8", memory="32Gi", shared_memory="8Gi", gpus="1"),
        "evaluate": Resources(cpu="8", memory="32Gi", shared_memory="8Gi", gpus="1"),
        "promote": Resources(cpu="1", memory="2Gi", gpus=""),
    },
}
"""Column -> stage -> what its pod may use. How the figures were found is in docs/reference/run-form.md."""


def labels_of(stage: str) -> dict[str, str]:
    """Labels of each pod that runs `stage`, in KFP as in a Job, by which policies and people find it."""
    of_all = {"app.kubernetes.io/name": "yanmo", "app.kubernetes.io/part-of": "yanmo"}
    return {**of_all, "app.kubernetes.io/component": stage, "yanmo.dev/stage": stage}


def secrets_of(store_secret: str) -> dict[str, str]:
    """`SECRETS` with another one in the place of `STORE_SECRET`."""
    return {store_secret if name == STORE_SECRET else name: folder for name, folder in SECRETS.items()}


def images_of(prefix: str, with_ray: bool) -> dict[str, str]:
    """Return, for each of `IMAGES`, the name under which a cluster finds it.

    Args:
        prefix: put before each.
        with_ray: whether the data stages' is the one that has Ray.
    """
    return {
        name: f"{prefix}{_WITH_RAY if with_ray and of == 'data' else name}" for of, name in IMAGES.items()
    }


def row_of(column: str, stage: str) -> Resources:
    """Return the row of `stage`; one that the column does not know has that of the data stages."""
    rows = COLUMNS[column]
    return rows.get(stage, rows[DATA_STAGES[0]])


def on_the_form(row: Resources) -> dict[str, str]:
    """Fields of the form that are about training's pods -> their defaults."""
    return {
        "training_pod_cpu": row.cpu,
        "training_pod_gpus": row.gpus,
        "training_pod_memory": row.memory,
    }


def off_the_form(row: Resources) -> dict[str, str]:
    """Options of the first task that are about training's pods -> what the pipeline sets.

    It tolerates the taint that clusters put on nodes with GPUs, so that nothing else takes their place.
    """
    return {"resolve.training_pod_tolerations": f"{GPU}:NoSchedule"} if row.gpus not in ("", "0") else {}


def apply(
    task: Any,
    stage: str,
    column: str = SMALL,
    *,
    cpu: Any = None,
    memory: Any = None,
    gpus: Any = None,
    node_selector: Any = None,
    tolerations: Any = None,
    store_secret: str = STORE_SECRET,
) -> Any:
    """Give `task` of `stage` its row of the table, the secret, retries, and no cache of KFP's.

    Args:
        cpu, memory: a pipeline parameter of type str in the place of the row's.
        gpus: GPUs of the pod, digits or a pipeline parameter of type str; None for a stage that uses none.
            KFP's driver (2.17.0) takes a number's limit for "" and drops it, "" likewise; "0" becomes a limit
            of 0, which runs without a device plugin. (Of a CPU or memory limit "" would end the run.)
        node_selector, tolerations: a pipeline parameter of type dict or list; None for neither.
        store_secret: the Secret that takes the place of `STORE_SECRET`.
    """
    from kfp import kubernetes  # 0.5 s; the table is read without

    row = row_of(column, stage)
    task.set_caching_options(False)  # the store is the only cache, and it knows about inputs' bytes
    task.set_retry(backoff_max_duration=_LONGEST_BACKOFF, **_RETRIES)
    cores, memory = row.cpu if cpu is None else cpu, row.memory if memory is None else memory
    task.set_cpu_request(cores).set_cpu_limit(cores)
    task.set_memory_request(memory).set_memory_limit(memory)
    if gpus is not None:
        task.set_accelerator_type(GPU).set_accelerator_limit(gpus)
    # For namespaces that enforce the Pod Security Standard `restricted`; KFP sets the rest of it.
    kubernetes.set_security_context(task, run_as_non_root=True)
    for label, value in labels_of(stage).items():
        kubernetes.add_pod_label(task, label, value)
    for name, value in {**IN_PODS, **OF_ONE_STAGE.get(stage, {})}.items():
        task.set_env_variable(name, value)
    secrets = secrets_of(store_secret) | ({RAY_SECRET: RAY_FOLDER} if stage in ON_RAY else {})
    for name, folder in secrets.items():
        kubernetes.use_secret_as_volume(task, name, mount_path=folder, optional=True)
    if node_selector is not None:
        kubernetes.add_node_selector_json(task, node_selector)
    if tolerations is not None:
        kubernetes.add_toleration_json(task, tolerations)
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
