"""resolve -> collect -> count -> show, with the seams of the real pipeline."""

from __future__ import annotations

from tiny_stages.collect import STAGE as COLLECT
from tiny_stages.count import STAGE as COUNT
from tiny_stages.show import STAGE as SHOW
from yanmo.resolve.config import STAGE as RESOLVE
from yanmo_pipelines.kfp_adapter import Form, Tasks, pipeline_of
from yanmo_pipelines.resources import SMALL
from yanmo_pipelines.run_form import fields_of

STAGES = (RESOLVE, COLLECT, COUNT, SHOW)


FIELDS = fields_of(*STAGES)


def tasks(form: Form) -> None:
    run = Tasks(form, SMALL)
    collected = run(COLLECT).after(run.first(RESOLVE, STAGES))
    counted = run(COUNT, pod={"gpus": "0"}, documents=collected.outputs["documents"])
    run(SHOW, pinned={"before": "champion"}, counted=counted.outputs["counted"])


PIPELINE = pipeline_of("tiny", "Count the characters of a text.", FIELDS, tasks, channel="dev")
