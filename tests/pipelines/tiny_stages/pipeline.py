"""collect -> count -> judge (show, show-earlier), with the seams of the real pipeline."""

from __future__ import annotations

from kfp import dsl

from tiny_stages.collect import STAGE as COLLECT
from tiny_stages.count import STAGE as COUNT
from tiny_stages.show import STAGE as SHOW
from yanmo.resolve.config import STAGE as RESOLVE
from yanmo_pipelines.kfp_adapter import PipelineOptions, Tasks, add_drop_downs, with_options

STAGES = (RESOLVE, COLLECT, COUNT, SHOW)


@dsl.pipeline(name="judge")
@with_options(SHOW)
def judge(
    store: str,
    channel: str,
    status: str,
    gpus: str,
    counted: dsl.Input[dsl.Model],
    champion: dsl.Input[dsl.Model],
    options: PipelineOptions,
) -> None:
    """Show a finished count."""
    run = Tasks(store, channel, options)
    with dsl.If(status == "done"):
        shown = run(SHOW, gpus=gpus, counted=counted)
        run(SHOW, name="show-champion", pointer="earlier", counted=champion).after(shown)


@dsl.pipeline(name="tiny")
@with_options(*STAGES)
def tiny(store: str, channel: str, options: PipelineOptions, count_gpus: str = "0") -> None:
    """Count the characters of a text.

    Args:
        store: where bytes live
        channel: whose pointers are moved
        count_gpus: GPUs of the counting pod
    """
    run = Tasks(store, channel, options)
    resolved = run(RESOLVE)
    collected = run(COLLECT)
    counted = run(COUNT, gpus=count_gpus, documents=collected.outputs["documents"])
    judge(
        store=store,
        channel=channel,
        status=counted.outputs["status"],
        gpus=count_gpus,
        counted=counted.outputs["counted"],
        champion=resolved.outputs["champion"],
        **options.flat(SHOW),
    ).set_caching_options(False)


PIPELINE = add_drop_downs(tiny, STAGES)
