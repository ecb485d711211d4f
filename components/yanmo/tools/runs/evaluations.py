"""What the models of a store were measured to, compared only where they were measured alike."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.common.errors import DataError, wrong_in
from yanmo.formats.stage_cost import finite
from yanmo.store.output import Output, read_json

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bits:
    """Bits per character, and their interval where the evaluation has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a model."""

    output: Output
    conditions: Mapping[str, str]
    """Evaluation set, split, scoring ...: what two evaluations must have in common to be compared."""
    mean: Bits
    genres: Mapping[str, Bits]

    @property
    def alike(self) -> str:
        """Equal for evaluations that may be compared."""
        return json.dumps(self.conditions, sort_keys=True)


def read_evaluation(output: Output) -> Evaluation | None:
    """What an output of evaluate says; None, and a warning, where its summary is lost or damaged."""
    try:
        summary = read_json(output, "summary.json")
        conditions = {name: str(value) for name, value in summary["conditions"].items()}
        genres = {name: _bits(value) for name, value in summary["genres"].items()}
        return Evaluation(output, conditions, _bits(summary["mean"]), genres)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = error if isinstance(error, DataError) else f"summary.json holds no results: {wrong_in(error)}"
        log.warning("%s is lost: %s", output, why)
        return None


def _bits(values: Mapping[str, Any]) -> Bits:
    value = finite(values["bits_per_character"])
    if value is None:
        raise ValueError("bits_per_character is no number")
    interval = values.get("interval")
    low, high = map(finite, interval) if isinstance(interval, list) and len(interval) == 2 else (None, None)
    return Bits(value, low, high) if low is not None and high is not None else Bits(value)


def chosen(evaluations: Iterable[Evaluation]) -> dict[str, Evaluation]:
    """Digest of a model -> its newest evaluation under the conditions that most models were measured under.

    Of conditions with equally many models those of the newest evaluation are taken.
    """
    groups: dict[str, dict[str, Evaluation]] = defaultdict(dict)
    for each in sorted(evaluations, key=lambda e: (e.output.manifest.created_at, e.output.manifest.key)):
        groups[each.alike][model_of(each.output)] = each
    if not groups:
        return {}
    return max(groups.values(), key=lambda group: (len(group), _newest(list(group.values()))))


def _newest(evaluations: Sequence[Evaluation]) -> tuple[str, str]:
    return max((e.output.manifest.created_at, e.output.manifest.key) for e in evaluations)


def model_of(evaluation: Output) -> str:
    """The content digest of the model that an evaluation measured; "" where it names none."""
    return _digest(evaluation, "model")


def set_of(evaluation: Output) -> str:
    """The content digest of the evaluation set that a model was measured on; "" where it names none."""
    return _digest(evaluation, "evaluation_set")


def _digest(output: Output, name: str) -> str:
    value = output.manifest.inputs.get(name)
    return str(value["content_digest"]) if value else ""
