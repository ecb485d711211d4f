"""The language-model pipeline: raw text -> evaluated, promoted model.

    resolve -> curate -> balance -> tokenize -> train -> evaluate and evaluate-champion -> promote

The graph is flat: in a cluster a nested pipeline or a condition costs pods of its own (20 s each on KFP 2.17)
and hides the outcome two clicks deep. What has nothing to do (a paused training, no champion yet) says so and
ends well; promote comes last, and its report says how the run ended.
"""

from __future__ import annotations

from kfp import dsl

from yanmo_pipelines.kfp_adapter import PipelineOptions, Tasks, add_drop_downs, with_options
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


@dsl.pipeline(name="language-model")  # type: ignore[untyped-decorator]
@with_options(*LANGUAGE_MODEL, defaults={"data_sources": "bundled"})
def language_model(
    fields: PipelineOptions,
    channel: str = "main",
    store: str = "",
    options: str = "",
    training_pod_cpu: str = "1",
    training_pod_gpus: str = "0",
    training_pod_memory: str = "3Gi",
) -> None:
    """Train a Chinese language model from raw text and promote it if it beats the champion.

    Args:
        training_pod_cpu: cores of the training pod and of each evaluation pod, such as 8 or 500m
        training_pod_gpus: GPUs of the training pod and of each evaluation pod, a whole number; 0 for none
        training_pod_memory: memory of the training pod and of each evaluation pod, such as 32Gi
    """
    run = Tasks(store, channel, fields, options)
    pod = {"cpu": training_pod_cpu, "memory": training_pod_memory, "gpus": training_pod_gpus}
    resolved = run.first(RESOLVE, checks=[s for s in LANGUAGE_MODEL if s is not RESOLVE])
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


PIPELINE = add_drop_downs(language_model, LANGUAGE_MODEL)
