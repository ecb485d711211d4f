"""The language-model pipeline with `launch` in the place of `train`: a training on several nodes.

The graph is that of language_model.py; the form has three fields more: nodes, queue, preemptible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo_pipelines.kfp_adapter import Tasks, pipeline_of
from yanmo_pipelines.language_model import START, form_of, graph
from yanmo_pipelines.stages import LAUNCH, ON_NODES

_OF_EACH_NODE = ("cpu", "memory", "gpus")
"""What the form says of training's pods and each node has; labels and taints are the TrainingRuntime's."""

_ABOUT = "Train a Chinese language model on several nodes and promote it if it beats the champion."


def build(column: str, store_secret: str) -> Any:
    """Return the pipeline, with a column of the table of resources and the Secret that names the store."""
    return pipeline_of(
        "language-model-on-nodes",
        _ABOUT,
        form_of(column, ON_NODES),
        lambda form: graph(Tasks(form, column, store_secret), ON_NODES, _launch),
    )


def _launch(run: Tasks, pod: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    flags = {name: pod[name] for name in _OF_EACH_NODE}
    return run(LAUNCH, pinned={**START, "training": ""}, flags=flags, **inputs).outputs["train"]
