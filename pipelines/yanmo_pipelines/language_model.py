"""The language-model pipeline: raw text -> evaluated, promoted model.

    resolve -> curate -> balance -> tokenize -> train -> judge (evaluate, champion, promote) -> new champion

`judge` and `after-promotion` are nested pipelines because their conditions read results of `train` and
`promote`: KFP's local orchestrator resolves a condition on its pipeline's own input, but not on a container
task's output in the same pipeline, which it silently takes for false (2.17.0, kfp/local/orchestrator,
_resolve_pipeline_channel).
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


@dsl.pipeline(name="after-promotion")  # type: ignore[untyped-decorator]
@with_options(RESOLVE)
def after_promotion(store: str, channel: str, promoted: str, options: PipelineOptions) -> None:
    """What follows a promotion, and nothing else: the new champion as a Model artifact of this run.

    A deployment goes here; it takes `outputs["champion"]`.
    """
    with dsl.If(promoted == "true"):
        Tasks(store, channel, options)(RESOLVE, name="new-champion")


@dsl.pipeline(name="judge")  # type: ignore[untyped-decorator]
@with_options(EVALUATE, PROMOTE)
def judge(
    store: str,
    channel: str,
    status: str,
    gpus: str,
    model: dsl.Input[dsl.Model],
    champion: dsl.Input[dsl.Model],
    evaluation_set: dsl.Input[dsl.Dataset],
    documents: dsl.Input[dsl.Dataset],
    options: PipelineOptions,
) -> None:
    """Compare a finished model with the channel's champion; a paused training ends here, orderly."""
    run = Tasks(store, channel, options)
    with dsl.If(status == "done"):
        challenged = run(EVALUATE, gpus=gpus, model=model, evaluation_set=evaluation_set, documents=documents)
        defended = run(
            EVALUATE,
            name="evaluate-champion",
            pointer="champion_evaluation",
            gpus=gpus,
            model=champion,
            evaluation_set=evaluation_set,
            documents=documents,
        ).after(challenged)
        judged = run(
            PROMOTE,
            challenger=challenged.outputs["evaluation"],
            champion=defended.outputs["evaluation"],
            baselines=challenged.outputs["baselines"],
            writing=challenged.outputs["writing"],
            champion_writing=defended.outputs["writing"],
        )
        after_promotion(
            store=store, channel=channel, promoted=judged.outputs["promoted"]
        ).set_caching_options(False)


@dsl.pipeline(name="language-model")  # type: ignore[untyped-decorator]
@with_options(*LANGUAGE_MODEL)
def language_model(store: str, channel: str, options: PipelineOptions, train_gpus: str = "0") -> None:
    """Train a Chinese language model from raw text and promote it if it beats the champion.

    Args:
        store: where bytes live: file:///path or s3://bucket/prefix
        channel: whose pointers are read and moved: dev, demo, nightly ...
        train_gpus: GPUs of the training pod and of each evaluation pod, a whole number; 0 for none
    """
    run = Tasks(store, channel, options)
    resolved = run(RESOLVE)
    curated = run(CURATE, evaluation_set=resolved.outputs["evaluation_set"])
    balanced = run(BALANCE, documents=curated.outputs["documents"])
    tokenized = run(TOKENIZE, documents=balanced.outputs["documents"])
    trained = run(TRAIN, gpus=train_gpus, token_cache=tokenized.outputs["token_cache"])
    judge(
        store=store,
        channel=channel,
        status=trained.outputs["status"],
        gpus=train_gpus,
        model=trained.outputs["model"],
        champion=resolved.outputs["champion"],
        evaluation_set=curated.outputs["evaluation_set"],
        documents=curated.outputs["documents"],
        **options.flat(EVALUATE, PROMOTE),
    ).set_caching_options(False)


PIPELINE = add_drop_downs(language_model, LANGUAGE_MODEL)
