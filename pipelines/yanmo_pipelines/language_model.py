"""The language-model pipeline: raw text -> evaluated, promoted model.

    resolve -> curate -> balance -> tokenize -> train -> evaluate -> promote

The graph is flat: in a cluster a nested pipeline or a condition costs pods of its own (20 s each on KFP 2.17)
and hides the outcome two clicks deep. What has nothing to do (a paused training) says so and ends well;
promote comes last, and its report says how the run ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from yanmo.stage.declaration import Stage
from yanmo_pipelines.kfp_adapter import Tasks, pipeline_of
from yanmo_pipelines.resources import off_the_form, on_the_form, row_of
from yanmo_pipelines.run_form import FormField, fields_of
from yanmo_pipelines.stages import (
    BALANCE,
    CURATE,
    EVALUATE,
    LANGUAGE_MODEL,
    PROMOTE,
    RESOLVE,
    TOKENIZE,
    TRAIN,
)

_OF_THE_POD = {
    "cpu": "cpu",
    "memory": "memory",
    "gpus": "gpus",
    "node_selector": "nodes",
    "tolerations": "tolerations",
}
"""Argument of `resources.apply` -> output of the first task, after `training_pod_`."""


Train = Callable[[Tasks, Mapping[str, Any], Mapping[str, Any]], Any]
"""Makes the task that trains, of what training's pods are and its inputs; gives its model."""

_ABOUT = "Train a Chinese language model from raw text and promote it if it beats the champion."


def build(column: str, store_secret: str) -> Any:
    """Return the pipeline, with a column of the table of resources and the Secret that names the store."""
    fields = form_of(column, LANGUAGE_MODEL)
    return pipeline_of(
        "language-model",
        _ABOUT,
        fields,
        lambda form: graph(Tasks(form, column, store_secret), LANGUAGE_MODEL, train_here),
    )


def form_of(
    column: str, stages: Sequence[Stage], defaults: Mapping[str, Any] | None = None
) -> list[FormField]:
    """Return the fields of the form of these stages.

    Args:
        defaults: name of a field -> its default, where it is not that of the language model's form.
    """
    row = row_of(column, TRAIN.name)
    return fields_of(*stages, defaults={"data_sources": "bundled", **on_the_form(row), **(defaults or {})})


def graph(
    run: Tasks, stages: Sequence[Stage], train: Train, *, tunes: Mapping[str, str] | None = None
) -> None:
    """All tasks, with the one that `train` makes in its place.

    Args:
        stages: those whose options the first task reads.
        tunes: for a pipeline that tunes a model and measures that model too: option -> what the pipeline
            sets where nobody else does.
    """
    resolved = run.first(RESOLVE, stages, off_the_form(row_of(run.column, TRAIN.name)) | dict(tunes or {}))
    pod = {limit: resolved.outputs[f"training_pod_{name}"] for limit, name in _OF_THE_POD.items()}
    curated = run(CURATE, pinned={"evaluation_set": "evaluation_set"}).after(resolved)
    balanced = run(BALANCE, documents=curated.outputs["documents"])
    tokenized = run(TOKENIZE, pinned={"tokenizer": "tokenizer"}, documents=balanced.outputs["documents"])
    model = train(run, pod, {"token_cache": tokenized.outputs["token_cache"]})
    beside = {"champion": "champion"} | ({} if tunes is None else {"base": "start_model"})
    measured = run(
        EVALUATE,
        pod=pod,
        pinned=beside,
        model=model,
        evaluation_set=curated.outputs["evaluation_set"],
        documents=curated.outputs["documents"],
    )
    run(PROMOTE, challenger=measured.outputs["evaluation"])


START = {"model": "start_model"}
"""What a training starts from."""


def train_here(run: Tasks, pod: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return the model of the task that trains in a pod of its own."""
    return run(TRAIN, pod=pod, pinned=START, **inputs).outputs["model"]
