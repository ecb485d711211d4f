"""The data-only pipeline: raw text -> token cache, to look at a corpus before a model is trained."""

from __future__ import annotations

from typing import Any

from yanmo_pipelines.kfp_adapter import Form, Tasks, pipeline_of
from yanmo_pipelines.run_form import fields_of
from yanmo_pipelines.stages import BALANCE, CURATE, DATA_ONLY, RESOLVE, TOKENIZE

_OF_TRAINING = (
    *("model_start", "train_unfinished"),
    *("training_pod_cpu", "training_pod_gpus", "training_pod_memory"),
)
"""Fields of the first task that mean nothing here."""

_ABOUT = "Curate, balance and tokenize raw text, and train nothing."


def build(column: str, store_secret: str) -> Any:
    """Return the pipeline, with a column of the table of resources and the Secret that names the store."""
    fields = fields_of(*DATA_ONLY, defaults={"data_sources": "bundled"}, leave_out=_OF_TRAINING)

    def tasks(form: Form) -> None:
        run = Tasks(form, column, store_secret)
        resolved = run.first(RESOLVE, DATA_ONLY)
        curated = run(CURATE, pinned={"evaluation_set": "evaluation_set"}).after(resolved)
        balanced = run(BALANCE, documents=curated.outputs["documents"])
        run(TOKENIZE, pinned={"tokenizer": "tokenizer"}, documents=balanced.outputs["documents"])

    return pipeline_of("data-only", _ABOUT, fields, tasks)
