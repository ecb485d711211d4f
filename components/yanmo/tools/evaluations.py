"""Evaluations of models as tools read them: bits per character, and under which conditions."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from yanmo.common.errors import DataError, wrong_in
from yanmo.common.threads import thread_pool
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, find_output, read_json
from yanmo.tools.store.inventory import take

log = logging.getLogger(__name__)
_AT_ONCE = 8
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Bits:
    """Bits per character, and their interval where the evaluation has one."""

    value: float
    interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, values: dict[str, Any]) -> Bits:
        interval = values.get("interval")
        return cls(float(values["bits_per_character"]), (interval[0], interval[1]) if interval else None)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a model."""

    output: Output
    conditions: dict[str, str]
    """Evaluation set, split, scoring ...: what two evaluations must have in common to be compared."""
    mean: Bits
    genres: dict[str, Bits]


def read_evaluation(output: Output) -> Evaluation | None:
    try:
        summary = read_json(output, "summary.json")
        conditions = {name: str(value) for name, value in summary["conditions"].items()}
        genres = {name: Bits.of(value) for name, value in summary["genres"].items()}
        return Evaluation(output, conditions, Bits.of(summary["mean"]), genres)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s is left out: %s", output, error if isinstance(error, DataError) else wrong_in(error))
        return None


def most_alike(evaluations: Iterable[Evaluation]) -> dict[str, Evaluation]:
    """Digest of a model -> its newest evaluation, of those made alike that most models have."""
    groups: dict[str, dict[str, Evaluation]] = defaultdict(dict)
    for one in sorted(evaluations, key=lambda e: e.output.manifest.created_at):
        groups[json.dumps(one.conditions, sort_keys=True)][input_digest(one.output, "model")] = one
    return max(reversed(groups.values()), key=len, default={})


def outputs_of(store: ObjectStore, stage: str) -> list[Output]:
    """Every committed output of a stage that can be read; of others a warning says why."""
    folders = take(store, f"cas/{stage}", leftovers=False).keys.values()
    keys = [folder.key for folder in folders if folder.manifest]
    return [
        one for one in each(lambda key: open_or_warn(lambda: find_output(store, stage, key)), keys) if one
    ]


def open_or_warn(open_it: Callable[[], Output | None]) -> Output | None:
    try:
        return open_it()
    except DataError as error:
        log.warning("left out: %s", error)
        return None


def input_digest(output: Output, name: str) -> str:
    """The content digest of an input; "" where there was none."""
    value = output.manifest.inputs.get(name)
    return str(value["content_digest"]) if value else ""


def each(action: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """`action` of every item, a few at a time, in order; the first error is raised."""
    pool = thread_pool(_AT_ONCE, "gather")
    try:
        return list(pool.map(action, items))
    finally:
        pool.shutdown(cancel_futures=True)
