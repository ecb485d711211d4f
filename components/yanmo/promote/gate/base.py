"""What a tuned model gained and forgot, beside the model that it was tuned from.

Both are measured on one evaluation set in the same way, so documents are paired. A genre that holds chats
counts as gained, as its bits are of answers alone; any other as kept or forgotten.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from yanmo.common.bootstrap import interval
from yanmo.promote.gate.evaluation import Evaluation, different_conditions, joined_scores, open_evaluation
from yanmo.promote.gate.spread import CHALLENGER, CHAMPION, CHARACTERS, Floats, drawn_gains
from yanmo.store.output import Output

log = logging.getLogger(__name__)
BASE = "base"
"""Section of an evaluation that holds the comparison, and the input of the stage."""
_DIGITS = 5


def is_base_of(base: Output, challenger: Output) -> bool:
    """Return whether `base` measures the model that the challenger's training started from."""
    tuned, started = open_evaluation(challenger).model, open_evaluation(base).model
    start = tuned.manifest.inputs.get("model")
    return start is not None and start["content_digest"] == started.content_digest


def with_base(evaluation: Evaluation, base: Evaluation | None, draws: int, seed: int) -> Evaluation:
    """The evaluation with what its model gained and forgot in its summary; as it is without a base."""
    if base is None:
        return evaluation
    different = different_conditions(evaluation, base)
    if different:
        log.warning(
            "%s and %s (base) were not measured alike (%s): what was forgotten is not judged",
            evaluation.output,
            base.output,
            different,
        )
        return evaluation
    compared = compare(joined_scores(evaluation, base), genres_of_chats(evaluation), draws, seed)
    return dataclasses.replace(evaluation, summary={**evaluation.summary, BASE: compared})


def genres_of_chats(evaluation: Evaluation) -> frozenset[str]:
    """The genres of the evaluation set that hold chats."""
    documents = evaluation.output.input("evaluation_set")
    found: set[str] = set()
    for path in documents.paths("*.parquet") if documents else []:
        if "turns" in pq.read_schema(path).names:
            table = pq.read_table(path, columns=["genre", "turns"])
            found |= set(table.filter(pc.is_valid(table["turns"]))["genre"].to_pylist())
    return frozenset(found)


def compare(
    scores: Mapping[str, Floats], chats: frozenset[str], draws: int, seed: int
) -> dict[str, dict[str, Any] | None]:
    """Bits per character before and after, of answers and of texts.

    Args:
        scores: genre -> (documents, 4): characters, bits of the tuned model, of its base, group.
        chats: the genres whose bits are of answers.

    Returns:
        {"answers": mean over genres of chats, "forgotten": mean over the others, "genres": {genre: ...}},
        each {"base", "tuned", "bits", "interval"}, `bits` being tuned minus base: below 0 is better. None for
        a mean over no genre.
    """
    drawn = drawn_gains(scores, draws, seed)
    genres = {genre: _change([values], [drawn[genre]] if drawn else None) for genre, values in scores.items()}

    def mean(of: list[str]) -> dict[str, Any] | None:
        chosen = [scores[genre] for genre in of]
        return _change(chosen, [drawn[genre] for genre in of] if drawn else None) if chosen else None

    return {
        "answers": mean([genre for genre in scores if genre in chats]),
        "forgotten": mean([genre for genre in scores if genre not in chats]),
        "genres": genres,
    }


def _change(scores: list[Floats], drawn: list[Floats] | None) -> dict[str, Any]:
    """The mean over genres of both models, and how much more bits the tuned one needs."""
    tuned, base = (
        float(np.mean([values[:, which].sum() / values[:, CHARACTERS].sum() for values in scores]))
        for which in (CHALLENGER, CHAMPION)
    )
    more = interval(-np.mean(drawn, axis=0)) if drawn else None
    return {
        "base": round(base, _DIGITS),
        "tuned": round(tuned, _DIGITS),
        "bits": round(tuned - base, _DIGITS),
        "interval": [round(float(bound), _DIGITS) for bound in more] if more else None,
    }
