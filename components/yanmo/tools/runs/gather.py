"""Finds the runs of a store: each model, what it was made of, how it was measured, and what it cost.

Reads pointers, manifests and small records, a few at a time, each once for all runs together. For N models
and E evaluations these are N + E manifests, those of the N models' texts, at most N summaries and 2 N records
of cost: about five requests a run on S3.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from yanmo.common.errors import DataError, UsageError
from yanmo.common.threads import thread_pool
from yanmo.common.words import plural
from yanmo.formats.stage_cost import StageCost, stage_cost
from yanmo.options.nearest import did_you_mean
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectInfo, ObjectStore
from yanmo.store.output import Output, find_output, open_reference
from yanmo.tools.runs.evaluations import Evaluation, chosen, model_of, read_evaluation, set_of
from yanmo.tools.store.inventory import KeyFolder, take
from yanmo.tools.store.pointed import Named, read_undamaged

log = logging.getLogger(__name__)
TRAIN = "train"
FOLLOWED = ("tokenize", "balance", "curate")
"""The stages whose options a run is told apart by, beside those of train itself."""
_AT_ONCE = 8
S = TypeVar("S")
T = TypeVar("T")


@dataclass(kw_only=True)
class Run:
    """A model and what is known of it."""

    key: str
    digest: str = ""
    """Of the model's content."""
    model: Output | None = None
    """None where it is lost or its manifest is damaged."""
    state: str = "done"
    """done, damaged (its manifest) or lost (it, or a file of it that is no record)."""
    chain: dict[str, Output] = field(default_factory=dict)
    """Stage -> its output: train, and what its text came from; a second balance is `balance2`."""
    is_whole: bool = True
    """Whether all of the chain could be read."""
    own_tokenizer: bool = False
    """Whether the tokenizer follows from the tokenize stage's own options and text."""
    champion_of: list[str] = field(default_factory=list)
    """Channels whose champion it is."""
    was_champion_of: list[str] = field(default_factory=list)
    """Channels whose champion it was and is no more."""
    evaluation: Evaluation | None = None
    cost: StageCost = field(default_factory=StageCost)

    @property
    def name(self) -> str:
        return f"{TRAIN}/{self.key[:12]}"

    @property
    def made_at(self) -> str:
        """UTC, ISO 8601; empty where it is not known."""
        return self.model.manifest.created_at if self.model else ""

    def count(self, name: str) -> int | None:
        """A count of the manifest: steps, tokens, parameters."""
        value = self.model.manifest.counts.get(name) if self.model else None
        return value if type(value) is int else None


@dataclass(kw_only=True)
class Gathered:
    """The runs of a channel or a store."""

    uri: str
    channel: str
    """Empty for the whole store."""
    runs: list[Run]
    others: int = 0
    """Older runs that were not asked for."""
    elsewhere: list[str] = field(default_factory=list)
    """Names of runs that were measured, but not alike: on another set, split or number of documents."""

    @property
    def measured(self) -> list[Evaluation]:
        return [run.evaluation for run in self.runs if run.evaluation]

    @property
    def genres(self) -> list[str]:
        """In the order of the evaluations."""
        return list(dict.fromkeys(genre for each in self.measured for genre in each.genres))


def gather(store: ObjectStore, channel: str = "", last: int = 0) -> Gathered:
    """The runs of the store, or those of a channel, newest first.

    A run is of a channel if a pointer or the history of the channel names it, if it was measured on the
    channel's evaluation set (or one that this was made from), or if its text keeps such a set apart.

    Args:
        last: how many of the newest; 0 for all.

    Raises:
        UsageError: there is no such channel.
    """
    named = _named(store, channel)
    runs, evaluations = _runs(store), evaluations_in(store)
    sets = _sets_of_channel(store, named)
    _add_lost(runs, named, [e for e in evaluations if not channel or set_of(e) in sets])
    _find_chains(store, list(runs.values()))
    measured = {model_of(e) for e in evaluations if set_of(e) in sets}
    mine = {n.reference.key for n in named if n.reference.stage == TRAIN}
    kept = [
        run
        for run in runs.values()
        if not channel
        or run.key in mine
        or run.digest in measured
        or any(s in sets for s in _kept_apart(run))
    ]
    kept.sort(key=lambda run: (run.made_at, run.key), reverse=True)
    shown = kept[:last] if last else kept
    _enter_champions(runs, named)
    of_shown = [e for e in evaluations if model_of(e) in {run.digest for run in shown}]
    present = sets[:1] if channel else ()
    read = each(read_evaluation, [e for e in of_shown if not present or set_of(e) in present])
    best = chosen(e for e in read if e)
    for run, cost in zip(shown, each(_cost, shown), strict=True):
        run.evaluation, run.cost = best.get(run.digest), cost
    tried = {model_of(e) for e in of_shown}
    elsewhere = [run.name for run in shown if run.evaluation is None and run.digest in tried]
    others = len(kept) - len(shown)
    return Gathered(uri=store.uri, channel=channel, runs=shown, others=others, elsewhere=elsewhere)


def each(action: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """`action` of every item, a few at a time, in order; the first error is raised."""
    pool = thread_pool(_AT_ONCE, "gather")
    try:
        return list(pool.map(action, items))
    finally:
        pool.shutdown(cancel_futures=True)


def _named(store: ObjectStore, channel: str) -> list[Named]:
    """What the channel's pointers and history name; of a whole store only champions."""
    listed = list(store.list("pointers"))
    channels = sorted({info.name.split("/")[1] for info in listed if info.name.count("/") > 1})
    if channel and channel not in channels:
        known = f"it has {', '.join(channels[:10])}" if channels else "it has none: run a stage first"
        hint = did_you_mean(channel, channels)
        raise UsageError(f"--channel {channel[:100]!r}: {store.uri} has no such channel{hint}; {known}")
    wanted = [info for info in listed if _is_wanted(info.name.split("/"), channel)]
    found: list[Named] = []
    for named, damaged in each(lambda info: read_undamaged(store, [info]), wanted):
        found += named
        for by, why in damaged.items():
            log.warning("%s is left out: %s", by, why)
    return found


def _is_wanted(parts: Sequence[str], channel: str) -> bool:
    if channel:
        return parts[1] == channel and parts[2:3] != ["runs"]
    return parts[2:] == ["champion.json"] or parts[2:3] == ["history"]


def _folders(store: ObjectStore, stage: str) -> list[KeyFolder]:
    found = take(store, f"cas/{stage}", leftovers=False).keys.values()
    return [folder for folder in found if folder.manifest and folder.stage == stage]


def _runs(store: ObjectStore) -> dict[str, Run]:
    """Every committed model of the store, by its key."""

    def opened(folder: KeyFolder) -> Run | None:
        try:
            model = find_output(store, folder.stage, folder.key)
        except DataError as error:
            log.warning("train/%s is damaged: %s", folder.key[:12], error)
            return Run(key=folder.key, state="damaged", is_whole=False)
        if model is None:
            return None  # removed since it was listed
        missing = _missing(model, folder.attempts.get(model.manifest.attempt, ()))
        if missing:
            log.warning("%s is lost: %s; `yanmo store verify` says more", model, missing)
        state = "lost" if missing else "done"
        return Run(
            key=folder.key, digest=model.content_digest, model=model, state=state, chain={TRAIN: model}
        )

    return {run.key: run for run in each(opened, _folders(store, TRAIN)) if run}


def _missing(model: Output, listed: Iterable[ObjectInfo]) -> str:
    """Which file of a model (not of its records) the listing lacks or has in another size; "" for none."""
    sizes = {info.name.split("/", 4)[4]: info.bytes for info in listed}
    lost = [f.path for f in model.manifest.files if f.role == "content" and sizes.get(f.path) != f.bytes]
    return (
        f"{lost[0]} is missing or of another size" + f" ({plural(len(lost), 'file')})" * (len(lost) > 1)
        if lost
        else ""
    )


def evaluations_in(store: ObjectStore) -> list[Output]:
    """Every evaluation of the store that can be read."""

    def opened(folder: KeyFolder) -> Output | None:
        try:
            return find_output(store, folder.stage, folder.key)
        except DataError as error:
            log.warning("evaluate/%s is left out: %s", folder.key[:12], error)
            return None

    return [found for found in each(opened, _folders(store, "evaluate")) if found]


def _sets_of_channel(store: ObjectStore, named: Sequence[Named]) -> list[str]:
    """Content digests of the channel's evaluation set and of those that it was made from, newest first."""
    pointer = next((n for n in named if n.is_pointer and n.by.endswith("/evaluation_set")), None)
    found: list[str] = []
    reference = pointer.reference if pointer else None
    while reference and reference.content_digest not in found:
        found.append(reference.content_digest)
        output = _opened(store, reference)
        value = output.manifest.inputs.get("evaluation_set") if output else None
        reference = Reference.from_dict(value) if value and "manifest_uri" in value else None
    return found


def _opened(store: ObjectStore, reference: Reference) -> Output | None:
    try:
        return open_reference(store, reference)
    except DataError as error:
        log.warning("%s/%s is lost: %s", reference.stage, reference.key[:12], error)
        return None


def _add_lost(runs: dict[str, Run], named: Iterable[Named], evaluations: Iterable[Output]) -> None:
    """Models that a history or an evaluation names and the store has no more."""
    references = [n.reference for n in named]
    references += [Reference.from_dict(v) for e in evaluations if (v := e.manifest.inputs.get("model"))]
    for reference in references:
        if reference.stage != TRAIN:
            continue
        run = runs.get(reference.key)
        if run is None:
            log.warning("train/%s is lost: it was removed", reference.key[:12])
            run = runs[reference.key] = Run(key=reference.key, state="lost", is_whole=False)
        if not run.digest:
            run.digest = reference.content_digest


def _find_chains(store: ObjectStore, runs: Sequence[Run]) -> None:
    """Enter what each run was made of; an output that many runs share is opened once."""
    opened: dict[Reference, Output | None] = {}
    front = [run.model for run in runs if run.model]
    while front:
        wanted = dict.fromkeys(r for output in front for r in _followed(output) if r not in opened)
        found = each(lambda reference: _opened(store, reference), wanted)
        opened |= dict(zip(wanted, found, strict=True))
        front = [output for output in found if output]
    tokenizers = dict.fromkeys(r for o in opened.values() if o for r in _tokenizer(o))
    opened |= dict(zip(tokenizers, each(lambda r: _opened(store, r), tokenizers), strict=True))
    for run in runs:
        _enter_chain(run, opened)


def _followed(output: Output) -> Iterator[Reference]:
    for value in output.manifest.inputs.values():
        if value and "manifest_uri" in value and value["stage"] in FOLLOWED:
            yield Reference.from_dict(value)


def _tokenizer(output: Output) -> Iterator[Reference]:
    value = output.manifest.inputs.get("tokenizer")
    if output.manifest.stage == "tokenize" and value and "manifest_uri" in value:
        yield Reference.from_dict(value)


def _enter_chain(run: Run, opened: dict[Reference, Output | None]) -> None:
    waiting, seen = [run.model] if run.model else [], set[Reference]()
    while waiting:
        for reference in _followed(waiting.pop(0)):
            if reference in seen:
                continue
            seen.add(reference)
            output = opened[reference]
            if output is None:
                run.is_whole = False
                continue
            number = sum(o.manifest.stage == reference.stage for o in run.chain.values()) + 1
            run.chain[reference.stage + (str(number) if number > 1 else "")] = output
            waiting.append(output)
            run.own_tokenizer |= any(_is_own(output, opened[r]) for r in _tokenizer(output))


def _is_own(cache: Output, tokenizer: Output | None) -> bool:
    """Whether tokenize made the tokenizer itself, of this text and by these options."""
    if tokenizer is None:
        return False
    texts = [o.manifest.inputs.get("documents") or {} for o in (cache, tokenizer)]
    digests = [text.get("content_digest") for text in texts]
    return digests[0] == digests[1] and tokenizer.manifest.options.items() <= cache.manifest.options.items()


def _kept_apart(run: Run) -> Iterator[str]:
    """Content digests of the evaluation sets that a run's text shares nothing with."""
    for output in run.chain.values():
        for values in (output.manifest.inputs, output.manifest.references):
            if value := values.get("evaluation_set"):
                yield value["content_digest"]


def _enter_champions(runs: dict[str, Run], named: Iterable[Named]) -> None:
    now: dict[str, set[str]] = defaultdict(set)
    ever: dict[str, set[str]] = defaultdict(set)
    for one in named:
        channel, _, rest = one.by.partition("/")
        if one.reference.stage == TRAIN and (rest == "champion" or rest.startswith("history/")):
            ever[one.reference.key].add(channel)
            if rest == "champion":
                now[one.reference.key].add(channel)
    for key, channels in ever.items():
        runs[key].champion_of = sorted(now[key])
        runs[key].was_champion_of = sorted(channels - now[key])


def _cost(run: Run) -> StageCost:
    return stage_cost(run.model) if run.model else StageCost()


def described_input(value: dict[str, Any]) -> str:
    """An input of a manifest in one word or two: the output, or the names of the raw files."""
    if "manifest_uri" in value:
        return f"{value['stage']}/{value['key'][:12]}"
    files = value.get("files")
    names = [str(file.get("name", "")) for file in files if isinstance(file, dict)] if files else []
    shown = ", ".join(names[:2]) + f" and {len(names) - 2} more" * (len(names) > 2)
    return f"{value['content_digest'][:8]} {shown or value.get('uri', 'raw input')}"
