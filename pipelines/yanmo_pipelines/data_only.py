"""The data-only pipeline: raw text -> token cache, to look at a corpus before a model is trained."""

from __future__ import annotations

from kfp import dsl

from yanmo_pipelines.kfp_adapter import PipelineOptions, Tasks, add_drop_downs, with_options
from yanmo_pipelines.stages import BALANCE, CURATE, DATA_ONLY, RESOLVE, TOKENIZE


@dsl.pipeline(name="data-only")  # type: ignore[untyped-decorator]
@with_options(*DATA_ONLY, defaults={"data_sources": "bundled"})
def data_only(fields: PipelineOptions, channel: str = "main", store: str = "", options: str = "") -> None:
    """Curate, balance and tokenize raw text, and train nothing."""
    run = Tasks(store, channel, fields, options)
    resolved = run.first(RESOLVE, checks=[s for s in DATA_ONLY if s is not RESOLVE])
    curated = run(CURATE, evaluation_set=resolved.outputs["evaluation_set"])
    balanced = run(BALANCE, documents=curated.outputs["documents"])
    run(TOKENIZE, documents=balanced.outputs["documents"], tokenizer=resolved.outputs["tokenizer"])


PIPELINE = add_drop_downs(data_only, DATA_ONLY)
