"""The language-model pipeline: raw text -> evaluated, promoted model.

    resolve -> curate -> balance -> tokenize -> train -> evaluate and evaluate-champion -> promote

The graph is flat: in a cluster a nested pipeline or a condition costs pods of its own (20 s each on KFP 2.17)
and hides the outcome two clicks deep. What has nothing to do (a paused training, no champion yet) says so and
ends well; promote comes last, and its report says how the run ended.
"""

from __future__ import annotations

from typing import Any

from kfp import dsl

from yanmo_pipelines.kfp_adapter import Form, Tasks, add_drop_downs, fields_of, with_form
from yanmo_pipelines.resources import Column, off_the_form, on_the_form, row_of
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


def build(column: Column, store_secret: str) -> Any:
    """The pipeline, with a column of the table of resources and the Secret that names the store."""
    row = row_of(column, TRAIN.name)
    fields = fields_of(*LANGUAGE_MODEL, defaults={"data_sources": "bundled", **on_the_form(row)})

    @dsl.pipeline(name="language-model")  # type: ignore[untyped-decorator]
    @with_form(RESOLVE, fields)
    def language_model(form: Form) -> None:
        """Train a Chinese language model from raw text and promote it if it beats the champion."""
        run = Tasks(form, column, store_secret)
        resolved = run.first(RESOLVE, LANGUAGE_MODEL, off_the_form(row))
        pod = {limit: resolved.outputs[f"training_pod_{name}"] for limit, name in _OF_THE_POD.items()}
        curated = run(CURATE, evaluation_set=resolved.outputs["evaluation_set"])
        balanced = run(BALANCE, documents=curated.outputs["documents"])
        tokenized = run(
            TOKENIZE, documents=balanced.outputs["documents"], tokenizer=resolved.outputs["tokenizer"]
        )
        trained = run(
            TRAIN,
            pod=pod,
            token_cache=tokenized.outputs["token_cache"],
            model=resolved.outputs["start_model"],
        )
        measured_on = {
            "evaluation_set": curated.outputs["evaluation_set"],
            "documents": curated.outputs["documents"],
        }
        challenged = run(EVALUATE, pod=pod, model=trained.outputs["model"], **measured_on)
        defended = run(
            EVALUATE,
            name="evaluate-champion",
            pointer="champion_evaluation",
            pod=pod,
            model=resolved.outputs["champion"],
            **measured_on,
        ).after(trained)
        run(
            PROMOTE,
            challenger=challenged.outputs["evaluation"],
            champion=defended.outputs["evaluation"],
            baselines=challenged.outputs["baselines"],
            writing=challenged.outputs["writing"],
            champion_writing=defended.outputs["writing"],
        )

    return add_drop_downs(language_model, fields)
