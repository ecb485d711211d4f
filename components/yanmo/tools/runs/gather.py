"""Finds the runs of a store: each model, what it was made of, how it was measured, and what it cost.

Reads pointers, manifests and small records, a few at a time, each once for all runs together. For N models
and E evaluations these are N + E manifests, those of the N models' texts, at most N summaries and 2 N records
of cost: about five requests a run on S3.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from yanmo.common.errors import UsageError
from yanmo.common.names import DATA_STAGES
from yanmo.common.words import did_you_mean
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference
from yanmo.tools.evaluations import (
    Evaluation,
    each,
    input_digest,
    most_alike,
    open_or_warn,
    outputs_of,
    read_evaluation,
)
from yanmo.tools.store.pointed import Named, read_undamaged

log = logging.getLogger(__name__)
FOLLOWED = DATA_STAGES[::-1]
"""The stages whose options a run is told apart by, beside those of train itself."""


@dataclass(kw_only=True)
class Run:
    """A model and what is known of it."""

    model: Output
    chain: dict[str, Output] = field(default_factory=dict)
    """Stage -> its output: train, and what its text came from; a second balance is `balance2`."""
    options: dict[str, Any] = field(default_factory=dict)
    """`train.seed` -> value, for all of the chain; of an input that no option explains, its name."""
    champion: list[str] = field(default_factory=list)
    """`demo` where it is the channel's champion, `was demo` where it was."""
    evaluation: Evaluation | None = None

    @property
    def name(self) -> str:
        return f"train/{self.model.manifest.key}"

    @property
    def seconds(self) -> float | None:
        """Time of the training by the clock on the wall; None where its manifest does not say."""
        return self.model.manifest.metadata.get("seconds")


@dataclass(kw_only=True)
class Gathered:
    """The runs of a channel or a store."""

    uri: str
    channel: str
    """Empty for the whole store."""
    runs: list[Run]
    others: int = 0
    """Older runs that were not asked for."""

    @property
    def measured(self) -> list[Evaluation]:
        return [run.evaluation for run in self.runs if run.evaluation]

    @property
    def differing(self) -> list[str]:
        """Names of options with two values or more among the runs, those of train first."""
        values = defaultdict(set)
        for run in self.runs:
            for name, value in run.options.items():
                values[name].add(json.dumps(value, sort_keys=True))
        return [name for name, found in values.items() if len(found) > 1]


def gather(store: ObjectStore, channel: str = "", last: int = 0) -> Gathered:
    """Return the runs of the store, or those of a channel, newest first.

    A run is of a channel if a pointer or the history of the channel names it, if it was measured on the
    channel's evaluation set (or one that this was made from), or if its text keeps such a set apart.

    Args:
        last: how many of the newest; 0 for all.

    Raises:
        UsageError: there is no such channel.
    """
    named = _named(store, channel)
    runs, evaluations = (
        [Run(model=model) for model in outputs_of(store, "train")],
        outputs_of(store, "evaluate"),
    )
    _find_chains(store, runs)
    if channel:
        sets = _sets_of_channel(store, named)
        mine = {n.reference.key for n in named}
        measured = {
            input_digest(e, "model") for e in evaluations if input_digest(e, "evaluation_set") in sets
        }
        runs = [
            run
            for run in runs
            if run.model.manifest.key in mine
            or run.model.content_digest in measured
            or not sets.keys().isdisjoint(_kept_apart(run))
        ]
        present = next(iter(sets), "")
        evaluations = [e for e in evaluations if input_digest(e, "evaluation_set") == present]
    runs.sort(key=lambda run: (run.model.manifest.created_at, run.name), reverse=True)
    shown = runs[:last] if last else runs
    digests = {run.model.content_digest for run in shown}
    read = each(read_evaluation, [e for e in evaluations if input_digest(e, "model") in digests])
    best = most_alike([e for e in read if e])
    for run in shown:
        run.evaluation = best.get(run.model.content_digest)
        run.champion = list(_champion(run, named))
    return Gathered(uri=store.uri, channel=channel, runs=shown, others=len(runs) - len(shown))


def _named(store: ObjectStore, channel: str) -> list[Named]:
    """Return what the channel's pointers and history name; of a whole store only champions."""
    listed = [info for info in store.list("pointers") if info.name.count("/") > 1]  # others' files lie above
    channels = sorted({info.name.split("/")[1] for info in listed})
    if channel and channel not in channels:
        known = f"it has {', '.join(channels[:10])}" if channels else "it has none: run a stage first"
        hint = did_you_mean(channel, channels)
        raise UsageError(f"--channel {channel[:100]!r}: {store.uri} has no such channel{hint}; {known}")
    kinds = ("champion.json", "history") if not channel else ()
    parts = [(info, info.name.split("/")) for info in listed]
    wanted = [info for info, (_, of, kind, *_) in parts if channel in ("", of) and kind != "runs"]
    wanted = [info for info in wanted if not kinds or info.name.split("/")[2] in kinds]
    found: list[Named] = []
    for some, damaged in each(lambda info: read_undamaged(store, [info]), wanted):
        found += some
        for by, why in damaged.items():
            log.warning("%s is left out: %s", by, why)
    return found


def _champion(run: Run, named: Iterable[Named]) -> Iterator[str]:
    ever: dict[str, bool] = {}
    for one in named:
        channel, _, rest = one.by.partition("/")
        if one.reference.key == run.model.manifest.key and rest.startswith(("champion", "history/")):
            ever[channel] = ever.get(channel, False) or rest == "champion"
    yield from (channel if is_now else f"was {channel}" for channel, is_now in sorted(ever.items()))


def _sets_of_channel(store: ObjectStore, named: Sequence[Named]) -> dict[str, None]:
    """Content digests of the channel's evaluation set and of those that it was made from, newest first."""
    pointers = (n.reference for n in named if n.is_pointer and n.by.endswith("/evaluation_set"))
    found: dict[str, None] = {}
    reference = next(pointers, None)
    while reference and reference.content_digest not in found:
        found[reference.content_digest] = None
        output = open_or_warn(lambda pinned=reference: open_reference(store, pinned))  # type: ignore[misc]
        value = output.manifest.inputs.get("evaluation_set") if output else None
        reference = Reference.from_dict(value) if value and "manifest_uri" in value else None
    return found


def _kept_apart(run: Run) -> Iterator[str]:
    """Content digests of the evaluation sets that a run's text shares nothing with."""
    for output in run.chain.values():
        for values in (output.manifest.inputs, output.manifest.references):
            if value := values.get("evaluation_set"):
                yield value["content_digest"]


def _find_chains(store: ObjectStore, runs: Sequence[Run]) -> None:
    """Enter what each run was made of; an output that many runs share is opened once."""
    opened: dict[Reference, Output | None] = {}
    front = [run.model for run in runs]
    while front:
        names = (("tokenizer",) if output.manifest.stage == "tokenize" else () for output in front)
        wanted = dict.fromkeys(
            reference
            for output, more in zip(front, names, strict=True)
            for reference in _followed(output, *more)
            if reference not in opened
        )
        found = each(lambda r: open_or_warn(lambda: open_reference(store, r)), wanted)
        opened |= dict(zip(wanted, found, strict=True))
        front = [output for output in found if output and output.manifest.stage in FOLLOWED]
    for run in runs:
        _enter_chain(run, opened)
        run.options = {
            f"{stage}.{name}": value
            for stage, output in run.chain.items()
            for name, value in _options(output, opened)
        }


def _followed(output: Output, *stages: str) -> Iterator[Reference]:
    for value in output.manifest.inputs.values():
        if value and "manifest_uri" in value and value["stage"] in (*FOLLOWED, *stages):
            yield Reference.from_dict(value)


def _enter_chain(run: Run, opened: dict[Reference, Output | None]) -> None:
    waiting: list[Output | None] = [run.model]
    stages: Counter[str] = Counter()
    while waiting:
        output = waiting.pop(0)
        if output is None or output in run.chain.values():
            continue
        stage = output.manifest.stage
        stages[stage] += 1
        run.chain[f"{stage}{stages[stage] if stages[stage] > 1 else ''}"] = output
        waiting += [opened[reference] for reference in _followed(output)]


def _options(output: Output, opened: dict[Reference, Output | None]) -> Iterator[tuple[str, Any]]:
    """The semantic options of an output, its revision, and the inputs that no earlier option explains."""
    yield from {**output.manifest.options, "revision": output.manifest.revision}.items()
    for name, value in output.manifest.inputs.items():
        if not value or value.get("stage") in FOLLOWED:
            continue
        is_pinned = "manifest_uri" in value
        if name == "tokenizer" and is_pinned and _is_own(output, opened.get(Reference.from_dict(value))):
            continue
        files = ", ".join(str(file["name"]) for file in value.get("files", [])[:2])
        raw = f"{value['content_digest'][:8]} {files or value.get('uri', 'raw input')}"
        yield name, f"{value['stage']}/{value['key'][:12]}" if is_pinned else raw


def _is_own(cache: Output, tokenizer: Output | None) -> bool:
    """Return whether tokenize made the tokenizer of this text: it then follows from options and text."""
    return tokenizer is not None and input_digest(cache, "documents") == input_digest(tokenizer, "documents")
