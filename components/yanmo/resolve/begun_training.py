"""How a training that was begun is finished: with the data and options that it began with.

What may be trained on holds at once, however: where texts were taken down, a licence is not allowed any more,
or an option of `curate` was changed, it is `Outdated`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yanmo.common.address import redacted
from yanmo.common.errors import DataError, UsageError
from yanmo.common.names import DATA_STAGES
from yanmo.options.fields import by_kind, names_of, spelled, values_of
from yanmo.options.one_line import read_line
from yanmo.options.shared import Settings
from yanmo.options.values import AUTO
from yanmo.resolve.config import ResolveOptions
from yanmo.stage.excluded import digest_of, excluded_ids
from yanmo.stage.form import WholeRun, declared
from yanmo.store.manifest import make_key
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference
from yanmo.store.runs.run_record import read_night, read_run
from yanmo.store.runs.unfinished import Training

log = logging.getLogger(__name__)
TRAIN = "train"
_DATA_STAGES = DATA_STAGES[::-1]
"""Those before the training, the last first."""


class Outdated(DataError):
    """A training that may or can not be finished any more; says why."""


@dataclass(frozen=True)
class Finishing:
    """What this run does instead of what its form says."""

    training: Training
    model: Output | None
    """What it started from."""
    cache: Output
    run: WholeRun
    """The options that are handed on."""
    waits: tuple[str, ...]
    """What differs on this run's form, in words."""


def finishing_of(store: ObjectStore, options: ResolveOptions, run: WholeRun, training: Training) -> Finishing:
    """Return how the training is finished.

    Raises:
        Outdated: it may not be, or cannot be.
    """
    cache, model, made = _made_from(store, training)
    asked = read_line(str(night_of(store, options.channel, training).get("asked", "")))
    asks = read_line(asked_line(run))
    curated = _curated_by(store, options.channel, training, made["curate"])
    _check_texts(options, run, curated, asked.get("curate", {}), asks.get("curate", {}))
    finishing = _as_begun(run, training)
    _check_key(options, finishing, training, cache, model)
    for name in _DATA_STAGES:
        reference = json.dumps(vars(made[name].reference), separators=(",", ":"))
        finishing = finishing.with_stage(name, {**finishing.settings[name], "take": reference})
    return Finishing(training, model, cache, finishing, tuple(differing(run, asked, asks)))


def _made_from(store: ObjectStore, training: Training) -> tuple[Output, Output | None, dict[str, Output]]:
    """Return token cache, model to start from, and the outputs of the stages before it."""
    try:
        found = {name: open_reference(store, one) for name, one in training.inputs.items() if one}
        output: Output | None = found.get("token_cache")
        made = dict[str, Output]()
        for name in _DATA_STAGES:
            if output is None or output.manifest.stage != name:
                raise Outdated(f"its data are not those of a pipeline: no output of {name} among them")
            made[name], output = output, output.input("documents")
    except Outdated:
        raise
    except DataError as error:
        raise Outdated(f"what it was made from is gone: {error}") from error
    return made["tokenize"], found.get("model"), made


def _curated_by(store: ObjectStore, channel: str, training: Training, made: Output) -> Output:
    """Return what the run that began it curated; `made` where that is not known.

    An earlier run with other options may have curated the same texts: balance finds its output again then,
    and what the training was made from leads to that run's.
    """
    try:
        found = (read_run(store, channel, training.run_id) or {}).get("curate")
        own = open_reference(store, found) if found else None
    except DataError as error:
        log.warning("what run %s curated cannot be read: %s", training.run_id, error)
        return made
    return own if own is not None and own.content_digest == made.content_digest else made


def _check_texts(
    options: ResolveOptions,
    run: WholeRun,
    curated: Output,
    before: Mapping[str, str],
    said: Mapping[str, str],
) -> None:
    """Raise Outdated where this run would not train on the same texts, for other reasons than new ones.

    Args:
        before: what the form said of `curate` when the training was begun; empty where that is not known.
        said: what it says now.
    """
    now = run.options["curate"]
    then = curated.manifest.options
    of_curate: Any = type(now)
    for name, values in values_of(of_curate).items():
        if name not in then or then[name] == getattr(now, name):
            continue
        asked, asks = (of.get(name, AUTO).strip() or AUTO for of in (before, said))
        if values.takes_auto and asks == AUTO and (asked == AUTO or not before):
            continue  # left to the data, then and now
        raise Outdated(
            f"its texts were curated with {name}={spelled(then[name])}, "
            f"now it is {spelled(getattr(now, name))}"
        )
    excluded = curated.manifest.inputs.get("exclude")
    try:
        listed = digest_of(excluded_ids(getattr(now, "exclude", ""), options))
    except DataError as error:
        raise Outdated(f"whether its texts were taken down cannot be read: {error}") from error
    if listed != (excluded["content_digest"] if excluded else ""):
        raise Outdated("the list of texts that are left out (curate.exclude) changed since it was begun")
    if before and not _places(before.get("sources", "")) <= _places(said.get("sources", "")):
        raise Outdated(
            f"its texts are of data_sources {before.get('sources', '')}, which is not asked for now"
        )
    if before and before.get("benchmarks", "") != said.get("benchmarks", ""):
        raise Outdated("curate.benchmarks has changed since it was begun")


def asked_line(run: WholeRun) -> str:
    """Return what the form of a run says, in one line, without passwords: it is kept in the store."""
    return redacted(run.line(but="resolve"))


def night_of(store: ObjectStore, channel: str, training: Training) -> dict[str, Any]:
    """Return what the run noted that began it; nothing where that is gone, or it was no pipeline's."""
    try:
        return read_night(store, channel, training.run_id)
    except DataError as error:
        log.warning("what run %s asked for cannot be read: %s", training.run_id, error)
        return {}


def _places(sources: str) -> set[str]:
    return set(re.split(r"[,\s]+", sources.strip()))


def _as_begun(run: WholeRun, training: Training) -> WholeRun:
    """Return the run with all options of `train` that a key depends on as they were.

    The others are this run's: on which machine and how it trains, and until when. Where these contradict
    those (ranks among which a batch does not divide), those of the training are taken as well.
    """
    cls = type(run.options[TRAIN])
    said = {name: text for name, text in run.settings[TRAIN].items() if name not in training.options}
    begun = {name: spelled(value) for name, value in training.options.items()}
    unknown = sorted(begun.keys() - set(names_of(cls)))
    if unknown:
        raise Outdated(f"this version of Yanmo does not know its option {', '.join(unknown)}")
    continued = {name: spelled(cls.__dataclass_fields__[name].default) for name in _continued(cls)}
    try:
        return run.with_stage(TRAIN, {**said, **begun, **continued})
    except UsageError as error:
        log.warning(
            "this run's settings do not fit the training that it finishes, whose are taken: %s", error
        )
    execution = {n: spelled(v) for n, v in training.execution.items() if n in names_of(cls, kind="execution")}
    here = {name: text for name, text in said.items() if name in names_of(cls, kind="environment")}
    try:
        return run.with_stage(TRAIN, {**here, **execution, **begun, **continued})
    except UsageError as error:
        raise Outdated(f"this version of Yanmo refuses its options: {error}") from error


def _continued(cls: type) -> list[str]:
    """Return the options that settle into others: these are settled already."""
    settling = ("continued_", "epochs", "warmup_share")
    return [name for name in names_of(cls, kind="environment") if name.startswith(settling)]


def _check_key(
    options: ResolveOptions, run: WholeRun, training: Training, cache: Output, model: Output | None
) -> None:
    revision = next(stage.revision for stage in declared(options.stages) if stage.name == TRAIN)
    inputs = {"token_cache": cache, "model": model}
    digests = {name: one.content_digest for name, one in inputs.items() if one}
    if make_key(TRAIN, revision, by_kind(run.options[TRAIN], "semantic"), digests) != training.key:
        raise Outdated("this version of Yanmo trains it under another key")


def differing(run: WholeRun, asked: Settings, asks: Settings) -> list[str]:
    """Return what this run's form says otherwise than that of the run which began the training, in words."""
    if not asked:
        return []
    found = []
    for stage in (*reversed(_DATA_STAGES), TRAIN):
        then, now = asked.get(stage, {}), asks.get(stage, {})
        counts = {*names_of(type(run.options[stage]), kind="semantic"), "sources", "size", "preset"}
        for name in sorted({*then, *now} & counts):
            before, after = then.get(name, AUTO), now.get(name, AUTO)
            if before != after:
                found.append(f"{stage}.{name} {before or 'empty'}, now {after or 'empty'}")
    return found
