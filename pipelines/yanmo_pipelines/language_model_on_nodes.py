"""The language-model pipeline with `launch` in the place of `train`: a training on several nodes.

The graph is that of language_model.py; the form has three fields more: nodes, queue, preemptible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfp import dsl

from yanmo_pipelines.kfp_adapter import Form, Tasks, add_drop_downs, described, with_form
from yanmo_pipelines.language_model import START, form_of, graph
from yanmo_pipelines.resources import Column
from yanmo_pipelines.stages import LAUNCH, ON_NODES, RESOLVE

_OF_EACH_NODE = ("cpu", "memory", "gpus")
"""What the form says of training's pods and each node has; labels and taints are the TrainingRuntime's."""

_ABOUT = "Train a Chinese language model on several nodes and promote it if it beats the champion."


def build(column: Column, store_secret: str) -> Any:
    """Return the pipeline, with a column of the table of resources and the Secret that names the store."""
    fields = form_of(column, ON_NODES)

    @dsl.pipeline(name="language-model-on-nodes", description=described(_ABOUT, fields))  # type: ignore[untyped-decorator]
    @with_form(RESOLVE, fields)
    def language_model_on_nodes(form: Form) -> None:
        graph(Tasks(form, column, store_secret), ON_NODES, _launch)

    return add_drop_downs(language_model_on_nodes, fields)


def _launch(run: Tasks, pod: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    flags = {name: pod[name] for name in _OF_EACH_NODE}
    return run(LAUNCH, pinned={**START, "training": ""}, flags=flags, **inputs).outputs["train"]
