"""Guard metrics and contamination of an evaluation, by the names that limits use.

What an evaluation does not hold (an older one, or one without samples) is None: not measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from yanmo.promote.gate.evaluation import Evaluation
from yanmo.promote.gate.limits import VERSE

_PLACES = {
    "loop_share": ("memorization", "samples", "loops"),
    "copied_8grams": ("memorization", "samples", "copied_8grams"),
    "longest_copy": ("memorization", "samples", "longest_copy"),
    "genre_obedience": ("memorization", "samples", "genre_obedience"),
    "forgotten_bits": ("base", "forgotten", "bits"),
}
"""Where an evaluation keeps a metric: section, then names."""


def guard_metrics(evaluation: Evaluation) -> dict[str, float | None]:
    """Every metric of `limits.LIMIT_METRICS`."""
    genres: Mapping[str, Sequence[Mapping[str, Any]]] = evaluation.samples["genres"]
    shown = [texts for texts in genres.values() if texts]
    every = [text for texts in shown for text in texts]
    return {
        "distinct_2": min((_distinct(texts) for texts in shown), default=None),
        "written_share": min((_mean([_is_text(t) for t in texts]) for texts in shown), default=None),
        "ended_share": _mean([bool(t["ended"]) for t in every]) if every else None,
        **{name: found(evaluation.section(top), *path) for name, (top, *path) in _PLACES.items()},
        "repeated_share": _repeated_share(evaluation.samples),
        **{name: _rule(evaluation.section("verse"), name) for name in VERSE},
    }


def contamination_of(evaluation: Evaluation, limit: float) -> float | None:
    """Share of the evaluated documents that are in the training text.

    None where only a part of that text was searched and the share found is within `limit`: it may be
    higher. None too where all texts are too short to be looked for.
    """
    section = evaluation.section("contamination")
    share = found(section, "share")
    is_part = isinstance(section, Mapping) and bool(section.get("at_least"))
    return None if share is None or (is_part and share <= limit) else share


def _rule(rows: Any, name: str) -> float | None:
    """The share of generated texts that obey the verse rule `name`."""
    rows = rows if isinstance(rows, list) else []
    row = next((r for r in rows if isinstance(r, Mapping) and r.get("name") == name), None)
    return found(row, "generated", "share")


def found(values: Any, *path: str) -> float | None:
    """The number below the names of `path`; None where there is none."""
    at = values
    for name in path:
        at = at.get(name) if isinstance(at, Mapping) else None
    is_number = isinstance(at, int | float) and not isinstance(at, bool) and bool(np.isfinite(at))
    return float(at) if is_number else None


def _is_text(sample: Mapping[str, Any]) -> bool:
    return len("".join(sample["text"].split())) >= 2


def _repeated_share(samples: Mapping[str, Any]) -> float | None:
    """Share of samples equal to another one of their genre, of the worst genre: a model that knows one text.

    Without temperature a genre's samples are one text by design; then there is nothing to compare.
    """
    if not any(samples["genres"].values()):
        return None
    if not samples["settings"].get("temperature", 1.0):
        return 0.0
    return max(_repeats([t["text"] for t in texts]) for texts in samples["genres"].values() if texts)


def _repeats(texts: Sequence[str]) -> float:
    times = Counter(texts)
    return sum(n for n in times.values() if n > 1) / len(texts)


def _distinct(texts: Sequence[Mapping[str, Any]]) -> float:
    """Mean share of different character pairs; a sample without a pair has none."""
    return _mean([_distinct_pairs(t["text"]) for t in texts])


def _distinct_pairs(text: str) -> float:
    pairs = [text[i : i + 2] for i in range(len(text) - 1)]
    return len(set(pairs)) / len(pairs) if pairs else 0.0


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
