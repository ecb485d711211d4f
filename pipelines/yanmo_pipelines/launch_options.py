"""Options of `launch`, which takes the place of `train` where a training runs on several nodes of a cluster.

The room of the cluster does the work (cluster/launch); whoever compiles a pipeline or reads its form needs
this file alone, and of it the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from yanmo.options.fields import Options, input_ref, opt
from yanmo.options.pods import Cores, Gpus, Memory
from yanmo.options.shared import Settings, StageOptions
from yanmo.options.values import brief
from yanmo.stage.declaration import Stage

MOST_NODES = 1000
"""As `yanmo train --nnodes` (docs/how-to/several-nodes.md)."""
TRAINJOB, INDEXED_JOB = "trainjob", "job"
TRAINER, VERSION = "trainer.kubeflow.org", "v1alpha1"
"""The API of a TrainJob."""
LAUNCHED = "yanmo.dev/launch"
"""Label of a training's objects: the first digits of the launch's key."""
DAY, NIGHT = "yanmo-day", "yanmo-night"
"""WorkloadPriorityClasses of manifests/components/queue."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class NodesOptions(Options, group="nodes"):
    """The nodes (pods), each with the same share of CPU, memory and GPUs."""

    nodes: int = opt(
        2,
        "pods that train together, each on a node of the cluster or a part of one",
        kind="environment",
        least=1,
        most=MOST_NODES,
        often=True,
        form="training_nodes",
    )
    gpus: Gpus = opt(
        Gpus("0"),
        "GPUs of each pod, and so its ranks; 0 for one rank on its CPU",
        kind="environment",
        often=True,
    )
    cpu: Cores = opt(Cores("1"), "cores of each pod, such as 8 or 500m", kind="environment", often=True)
    memory: Memory = opt(Memory("3Gi"), "memory of each pod, such as 32Gi", kind="environment", often=True)
    queue: str = opt(
        "",
        "Kueue's LocalQueue in which the training waits for its turn; empty: none",
        kind="environment",
        often=True,
        metavar="NAME",
        form="training_queue",
    )
    preemptible: bool = opt(
        False,
        "of the queue: give way to what is not preemptible, save, and go on later "
        f"(WorkloadPriorityClass {NIGHT} in the place of {DAY})",
        kind="environment",
        often=True,
        form="training_preemptible",
    )

    def contradictions(self) -> list[str]:
        """Return what only a queue can do, and names that nothing in a cluster can have."""
        if self.preemptible and not self.queue:
            return ["--preemptible needs --queue: Kueue alone lets a training give way and go on"]
        if self.queue and not _NAME.fullmatch(self.queue):
            return [
                f"--queue {brief(self.queue)}: expected a LocalQueue's name: small letters, digits, - and ."
            ]
        return []


@dataclass(frozen=True, kw_only=True)
class LaunchOptions(NodesOptions, StageOptions, group="launch"):
    """Train on several nodes of a cluster, as a TrainJob of Kubeflow Trainer, and follow it to its end.

    Exit code: the training's own. `yanmo launch reap` deletes what cancelled runs left.
    """

    token_cache: str = input_ref("token cache to train on", stages=("tokenize",))
    model: str = input_ref(
        "model to start from; with none, a new one", stages=("train",), optional=True, default="none"
    )
    training: tuple[str, ...] = opt(
        (),
        "options of the training, in one line as on the run form: train.steps=100 train.seed=2; those of "
        "other stages in it are passed over; may be given many times, the last one wins",
        kind="environment",
        metavar="LINE",
    )
    set: tuple[str, ...] = opt(
        (),
        "an option of the training (steps=100, or train.steps=100); may be given many times",
        kind="environment",
        metavar="NAME=VALUE",
        often=True,
    )
    by: str = opt(
        "auto",
        "what the pods are made by: trainjob is Kubeflow Trainer's, job an Indexed Job with a headless "
        "Service; auto is a TrainJob where Trainer is installed",
        kind="environment",
        choices=("auto", TRAINJOB, INDEXED_JOB),
    )
    runtime: str = opt(
        "yanmo-train", "TrainingRuntime of a TrainJob, from manifests/", kind="environment", metavar="NAME"
    )
    dry_run: bool = opt(
        False, "print what would be made as YAML; make nothing", kind="environment", often=True
    )
    namespace: str = opt(
        "",
        "Kubernetes namespace; default: the pod's own, else that of kubeconfig's context, else kubeflow",
        kind="environment",
        often=True,
        variable="YANMO_NAMESPACE",
    )
    context: str = opt(
        "", "context of kubeconfig; default: its current one", kind="environment", metavar="NAME"
    )
    look_seconds: float = opt(
        3.0, "seconds between two looks at the pods", kind="environment", above=0, most=600
    )

    def contradictions(self) -> list[str]:
        """Names that nothing in a cluster can have, and what no launch can do."""
        if not _NAME.fullmatch(self.runtime):
            return [f"--runtime {brief(self.runtime)}: expected a name: small letters, digits, - and ."]
        if self.pointer or self.take:
            return ["--pointer and --take are no options of launch: give them to `yanmo train`"]
        return []

    def problems_beside(self, others: Mapping[str, StageOptions], settings: Settings) -> list[str]:
        """Nodes that do not share the training's batch: it would be refused when the data are made."""
        train, pods = others.get("train"), others.get("resolve")
        gpus = int(str(getattr(pods, "training_pod_gpus", 0)))
        ranks = getattr(train, "ranks", 1) if "ranks" in settings.get("train", {}) else max(gpus, 1)
        rows = getattr(train, "batch_rows", 0)
        if rows % (self.nodes * ranks) == 0:
            return []
        return [
            f"training_nodes {self.nodes}: the {rows} rows of a batch (train.batch_rows) do not divide among "
            f"them with {ranks} ranks each; give a number that does"
        ]


STAGE = Stage(
    name="launch",
    image="cluster",
    revision=1,
    config=LaunchOptions,
    outputs={"launched": "Artifact", "train": "Model"},
    parameters=("status",),
    runs="yanmo_pipelines.cluster.launch",
)
"""Its second output is the model: a part called `train` moves the channel's pointer of that name."""
