"""The stages of each pipeline, read without building it: building costs 1.4 s of CPU.

(kfp walks the whole call stack at each `set_...` of a task: inspect.stack() in dsl/pipeline_task.py.)
"""

from __future__ import annotations

from yanmo.balance.config import STAGE as BALANCE
from yanmo.curate.config import STAGE as CURATE
from yanmo.evaluate.config import STAGE as EVALUATE
from yanmo.promote.config import STAGE as PROMOTE
from yanmo.resolve.config import STAGE as RESOLVE
from yanmo.stage.declaration import Stage
from yanmo.tokenize.config import STAGE as TOKENIZE
from yanmo.train.config import STAGE as TRAIN
from yanmo_pipelines.launch_options import STAGE as LAUNCH

__all__ = [
    "BALANCE",
    "CHAT",
    "CURATE",
    "DATA_ONLY",
    "EVALUATE",
    "LANGUAGE_MODEL",
    "LAUNCH",
    "ON_NODES",
    "PROMOTE",
    "RESOLVE",
    "STAGES",
    "TOKENIZE",
    "TRAIN",
]

LANGUAGE_MODEL = (RESOLVE, CURATE, BALANCE, TOKENIZE, TRAIN, EVALUATE, PROMOTE)

CHAT = LANGUAGE_MODEL

_AT = LANGUAGE_MODEL.index(TRAIN) + 1
ON_NODES = (*LANGUAGE_MODEL[:_AT], LAUNCH, *LANGUAGE_MODEL[_AT:])
"""Those whose options a run may be given; `launch` has the place of `train` in the graph, and runs it."""

DATA_ONLY = (RESOLVE, CURATE, BALANCE, TOKENIZE)

STAGES: dict[str, tuple[Stage, ...]] = {
    "language_model": LANGUAGE_MODEL,
    "language_model_on_nodes": ON_NODES,
    "chat": CHAT,
    "data_only": DATA_ONLY,
}
"""Name of a pipeline -> its stages."""
