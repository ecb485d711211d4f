"""resolve -> collect -> count -> show, show-champion, with the seams of the real pipeline."""

from __future__ import annotations

from kfp import dsl

from tiny_stages.collect import STAGE as COLLECT
from tiny_stages.count import STAGE as COUNT
from tiny_stages.show import STAGE as SHOW
from yanmo.resolve.config import STAGE as RESOLVE
from yanmo_pipelines.kfp_adapter import PipelineOptions, Tasks, add_drop_downs, with_options

STAGES = (RESOLVE, COLLECT, COUNT, SHOW)


@dsl.pipeline(name="tiny")
@with_options(*STAGES)
def tiny(
    fields: PipelineOptions,
    channel: str = "dev",
    store: str = "",
    options: str = "",
    counting_pod_gpus: str = "0",
) -> None:
    """Count the characters of a text.

    Args:
        counting_pod_gpus: GPUs of the counting pod
    """
    run = Tasks(store, channel, fields, options)
    resolved = run.first(RESOLVE, checks=())
    collected = run(COLLECT)
    counted = run(COUNT, pod={"gpus": counting_pod_gpus}, documents=collected.outputs["documents"])
    shown = run(SHOW, counted=counted.outputs["counted"])
    run(SHOW, name="show-champion", pointer="earlier", counted=resolved.outputs["champion"]).after(shown)


PIPELINE = add_drop_downs(tiny, STAGES)
