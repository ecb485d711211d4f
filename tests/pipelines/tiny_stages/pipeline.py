"""resolve -> collect -> count -> show, with the seams of the real pipeline."""

from __future__ import annotations

from kfp import dsl

from tiny_stages.collect import STAGE as COLLECT
from tiny_stages.count import STAGE as COUNT
from tiny_stages.show import STAGE as SHOW
from yanmo.resolve.config import STAGE as RESOLVE
from yanmo_pipelines.kfp_adapter import Form, Tasks, add_drop_downs, with_form
from yanmo_pipelines.resources import SMALL
from yanmo_pipelines.run_form import fields_of

STAGES = (RESOLVE, COLLECT, COUNT, SHOW)


FIELDS = fields_of(*STAGES)


@dsl.pipeline(name="tiny")
@with_form(RESOLVE, FIELDS, channel="dev")
def tiny(form: Form, counting_pod_gpus: str = "0") -> None:
    """Count the characters of a text.

    Args:
        counting_pod_gpus: GPUs of the counting pod
    """
    run = Tasks(form, SMALL)
    collected = run(COLLECT).after(run.first(RESOLVE, STAGES))
    counted = run(COUNT, pod={"gpus": counting_pod_gpus}, documents=collected.outputs["documents"])
    run(SHOW, pinned={"before": "champion"}, counted=counted.outputs["counted"])


PIPELINE = add_drop_downs(tiny, FIELDS)
