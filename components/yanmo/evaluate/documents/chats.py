"""The turns of a document that is a chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yanmo.formats.chat_tokens import Turn


def turns_of(row: Mapping[str, Any]) -> tuple[Turn, ...]:
    """The turns of a document (columns text, turns, loss_spans); none where it is no chat."""
    wanted = None if row["loss_spans"] is None else {tuple(span) for span in row["loss_spans"]}
    found = []
    for turn in row["turns"] or ():
        place = (turn["begin"], turn["end"])
        counts = turn["role"] == "assistant" if wanted is None else place in wanted
        found.append(Turn(turn["role"], row["text"][slice(*place)], counts))
    return tuple(found)
