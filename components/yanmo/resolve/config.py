"""Options of the resolve task."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from yanmo.options.fields import Options, opt
from yanmo.options.pods import Cores, Gpus, Memory, NodeLabels, Taints
from yanmo.options.shared import StageOptions
from yanmo.options.values import brief
from yanmo.stage.declaration import Stage


@dataclass(frozen=True, kw_only=True)
class PodOptions(Options, group="pods"):
    """Pods of training and evaluations, which KFP takes from this task"""

    training_pod_cpu: Cores = opt(
        Cores("1"),
        "cores of the training pod and of each evaluation pod, such as 8 or 500m",
        kind="environment",
        form="training_pod_cpu",
    )
    training_pod_gpus: Gpus = opt(
        Gpus("0"),
        "GPUs of the training pod and of each evaluation pod, a whole number; 0 for none",
        kind="environment",
        form="training_pod_gpus",
    )
    training_pod_memory: Memory = opt(
        Memory("3Gi"),
        "memory of the training pod and of each evaluation pod, such as 32Gi",
        kind="environment",
        form="training_pod_memory",
    )
    training_pod_nodes: NodeLabels = opt(
        NodeLabels(""), "labels of the nodes that these pods may run on, such as pool=gpu", kind="environment"
    )
    training_pod_tolerations: Taints = opt(
        Taints(""),
        "taints of nodes that these pods may run on all the same, such as nvidia.com/gpu:NoSchedule",
        kind="environment",
    )

    @property
    def pods(self) -> dict[str, str]:
        """Return what KFP makes these pods of: output of this task -> its text, JSON for an object."""
        return {
            "training_pod_cpu": str(self.training_pod_cpu),
            "training_pod_gpus": str(self.training_pod_gpus),
            "training_pod_memory": str(self.training_pod_memory),
            "training_pod_nodes": json.dumps(self.training_pod_nodes.selector),
            "training_pod_tolerations": json.dumps(self.training_pod_tolerations.tolerations),
        }


@dataclass(frozen=True, kw_only=True)
class ResolveOptions(PodOptions, StageOptions, group="resolve"):
    """Check a run's form, and pin what the channel's pointers name: no later task depends on the time."""

    start_from: str = opt(
        "new",
        "model that the training starts from: new is a new one, champion the channel's, latest the one that "
        "the channel trained last (both a new one while there is none), CHANNEL/champion another channel's, "
        "or train/KEY",
        kind="environment",
        form="model_start",
    )
    use_tokenizer: str = opt(
        "auto",
        "tokenizer of the run: auto is that of the model that the training starts from, else the channel's, "
        "else (none yet, or made with other options of the vocabulary) a new one; or champion, latest, "
        "tokenizer/KEY, new",
        kind="environment",
        form="model_tokenizer",
    )
    unfinished: str = opt(
        "finish-first",
        "a training that was paused, killed or not judged, and that a run with these options, or of this "
        "schedule, began: finish-first, with its data; start-new leaves it and trains what this form says; "
        "train/KEY finishes that one, whoever began it",
        kind="environment",
        form="train_unfinished",
    )
    schedule: str = opt(
        "",
        "schedule that starts the run; it finishes what an earlier run of it began, whatever its options "
        "were then; `yanmo schedule apply` sets it",
        kind="environment",
    )
    stages: tuple[str, ...] = opt(
        (), "module that declares another stage of the run; may be given many times", kind="environment"
    )
    form: tuple[str, ...] = opt(
        (),
        "a field of the run form: STAGE.OPTION=VALUE; an empty one has its default; may be given many times",
        kind="environment",
    )
    defaults: str = opt(
        "",
        "what an empty field stands for, and what is set where --others does not, in one such line",
        kind="environment",
    )
    others: str = opt(
        "",
        "options off the form, of all stages, in one line: train.warmup_steps=20 balance.by=author; a file "
        "or URI that holds it; or one of these and then such a line, which wins",
        kind="environment",
    )

    def contradictions(self) -> list[str]:
        """Return what `unfinished` cannot be."""
        if re.fullmatch(r"finish-first|start-new|train/[0-9a-f]{4,64}", self.unfinished):
            return []
        return [f"--unfinished {brief(self.unfinished)}: expected finish-first, start-new or train/KEY"]


STAGE = Stage(
    name="resolve",
    image="data",
    revision=1,
    config=ResolveOptions,
    parameters=(
        "options",
        "pinned",
        "training",
        "training_pod_cpu",
        "training_pod_gpus",
        "training_pod_memory",
    ),
    objects={"training_pod_nodes": dict, "training_pod_tolerations": list},
)
