"""The chat pipeline: tunes a model on chats, measures it beside what it was, and promotes it.

The graph is that of language_model.py, with a task more that measures the model that the tuning starts from;
what differs is what is set where nobody says otherwise. Measurements behind the numbers:
docs/tutorials/chat.md.
"""

from __future__ import annotations

from typing import Any

from yanmo_pipelines.kfp_adapter import Tasks, pipeline_of
from yanmo_pipelines.language_model import form_of, graph, train_here
from yanmo_pipelines.stages import CHAT

FIELDS = {
    "data_sources": "bundled,bundled-chats",
    "data_quotas": "chat=100%,*=5%",
    "model_start": "main/champion",
    "train_steps": "200",
}
"""Field of the form -> its default here: a twentieth of the text that the base has read is mixed in."""

OPTIONS = {
    "curate.filter_sets": "chat=none",
    "train.context": "256",
    "train.batch_rows": "16",
    "train.continued_peak": "0.5",
    "train.valid_on": "answers",
    "train.valid_every": "25",
    "train.early_stopping": "3",
    "evaluate.tasks": "chat",
    "promote.limits": "distinct_2>=0.5,written_share>=0.5,repeated_share<=0.5,forgotten_bits<=0.1",
}
"""Option off the form -> what it is here."""

_ABOUT = "Tune a language model on chats and promote it if it beats the champion."


def build(column: str, store_secret: str) -> Any:
    """Return the pipeline, with a column of the table of resources and the Secret that names the store."""
    return pipeline_of(
        "chat",
        _ABOUT,
        form_of(column, CHAT, FIELDS),
        lambda form: graph(Tasks(form, column, store_secret), CHAT, train_here, tunes=OPTIONS),
        channel="chat",
    )
