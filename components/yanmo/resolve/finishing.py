"""Whether this run finishes a training that an earlier one of the channel began, and how it is told to.

One training a run: the run that finishes an earlier one judges that model, and new data and changed options
wait for the next run. What the training was begun with is handed over by what this task hands over anyway:
the line of options (`train`'s as they were; to `curate`, `balance` and `tokenize` the output that they hand
on, so that they make nothing) and the model to start from.

What may be trained on holds at once, however: where texts were taken down, a licence is not allowed any more,
or an option of `curate` was changed, the training is set aside, and this run makes its own data. It is never
finished by itself then; its checkpoints stay until gc takes them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yanmo.common.address import redacted
from yanmo.common.errors import DataError, UsageError
from yanmo.common.names import DATA_STAGES
from yanmo.common.words import plural
from yanmo.options.fields import by_kind, names_of, spelled, values_of
from yanmo.options.one_line import read_line
from yanmo.options.shared import Settings
from yanmo.options.values import AUTO
from yanmo.resolve.config import ResolveOptions
from yanmo.stage.excluded import digest_of, excluded_ids
from yanmo.stage.form import WholeRun, declared
from yanmo.store.manifest import make_key
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, find_by_digits, open_reference
from yanmo.store.runs.run_record import note_night, read_night, read_run
from yanmo.store.runs.unfinished import (
    GIVEN_UP,
    LEFT,
    OUTDATED,
    TRAINED,
    Training,
    Unfinished,
    change_unfinished,
    read_unfinished,
    resumed_by,
)

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


def training_to_finish(
    store: ObjectStore, options: ResolveOptions, run: WholeRun
) -> tuple[Finishing | None, list[Training]]:
    """The channel's unfinished training that this run finishes, and those that are left alone.

    A run finishes what a run of the same pipeline with the same options began, and a schedule's what an
    earlier run of it began: anybody else's form says what is trained.

    Raises:
        DataError: `--unfinished train/KEY` names none, or one that cannot be finished.
    """
    if TRAIN not in run.options:
        return None, []
    record = read_unfinished(store, options.channel)
    ours = [one for one in record.open if _is_ours(store, options, run, one)]
    others = [one for one in record.open if one not in ours]
    if options.unfinished.startswith(f"{TRAIN}/"):
        named = _named(store, options, record)
        if named is not None:
            return _taken_up(store, options, run, named), [one for one in others if one.key != named.key]
    elif options.unfinished == "start-new":
        _leave(store, options, ours)
        ours = []
    for one in others:
        log.warning("%s is left alone: a run with other options began it. To finish it: %s", one, _field(one))
    for training in ours:
        try:
            found = _finishing(store, options, run, training)
        except Outdated as why:
            _set_aside(store, options, training, OUTDATED, str(why))
            continue
        if training.state == TRAINED and _gives_up(store, options, run, training):
            continue
        _say(found)
        return found, others
    return None, others


def _is_ours(store: ObjectStore, options: ResolveOptions, run: WholeRun, training: Training) -> bool:
    """Whether this run's schedule began it, or a run that asked for the same, or a person gave it to all."""
    if training.by_next:
        return True
    night = _night_of(store, options.channel, training)
    if options.schedule and night.get("schedule") == options.schedule:
        return True
    asked = str(night.get("asked", ""))
    if not asked or night.get("pipeline") != _pipeline(run):
        return False
    return not _differing(run, read_line(asked), read_line(_asked(run)))


def _pipeline(run: WholeRun) -> str:
    """Return what tells a pipeline from another: its stages."""
    return " ".join(run.options)


def _night_of(store: ObjectStore, channel: str, training: Training) -> dict[str, Any]:
    """Return what the run noted that began it; nothing where that is gone, or it was no pipeline's."""
    try:
        return read_night(store, channel, training.run_id)
    except DataError as error:
        log.warning("what run %s asked for cannot be read: %s", training.run_id, error)
        return {}


def _field(training: Training) -> str:
    """Return what a form says to finish it."""
    return f"train_unfinished={training.name}"


def _leave(store: ObjectStore, options: ResolveOptions, trainings: Sequence[Training]) -> None:
    """Set aside what this run would have to finish."""
    why = f"left by run {options.run_id or 'without an id'}, which was told to"

    def leave(record: Unfinished) -> Unfinished:
        for one in trainings:
            record = record.with_((record.of(one.key) or one).aside(LEFT, why))
        return record

    for one in trainings:
        log.warning("%s is left as it is; %s finishes it", one, _field(one))
    if trainings:
        change_unfinished(store, options.channel, leave)


def _named(store: ObjectStore, options: ResolveOptions, record: Unfinished) -> Training | None:
    """Return the training that --unfinished names; None where that is finished.

    Whoever fills in a form once may run it often, as a schedule does.
    """
    found = record.named(options.unfinished)
    if found is not None:
        return found
    model = find_by_digits(store, TRAIN, options.unfinished.removeprefix(f"{TRAIN}/"))
    if model is not None:
        log.warning("train_unfinished: %s is finished already, so this run does as with finish-first", model)
        return None
    raise DataError(
        f"--unfinished {options.unfinished}: expected a training that channel {options.channel!r} has begun "
        f"and not judged; there are: {record}"
    )


def _taken_up(store: ObjectStore, options: ResolveOptions, run: WholeRun, training: Training) -> Finishing:
    """Return how the training is finished that --unfinished names; it is the channel's again.

    Raises:
        Outdated: it may not be, or cannot be; it stays as it was.
    """
    found = _finishing(store, options, run, training.resumed())

    def resume(record: Unfinished) -> Unfinished:
        return record.with_((record.of(training.key) or training).resumed(), first=True)

    change_unfinished(store, options.channel, resume)
    _say(found)
    return found


def _finishing(store: ObjectStore, options: ResolveOptions, run: WholeRun, training: Training) -> Finishing:
    """Return how the training is finished.

    Raises:
        Outdated: it may not be, or cannot be.
    """
    cache, model, made = _made_from(store, training)
    asked = read_line(str(_night_of(store, options.channel, training).get("asked", "")))
    asks = read_line(_asked(run))
    curated = _curated_by(store, options.channel, training, made["curate"])
    _check_texts(options, run, curated, asked.get("curate", {}), asks.get("curate", {}))
    finishing = _as_begun(run, training)
    _check_key(options, finishing, training, cache, model)
    for name in _DATA_STAGES:
        reference = json.dumps(vars(made[name].reference), separators=(",", ":"))
        finishing = finishing.with_stage(name, {**finishing.settings[name], "take": reference})
    return Finishing(training, model, cache, finishing, tuple(_differing(run, asked, asks)))


def _made_from(store: ObjectStore, training: Training) -> tuple[Output, Output | None, dict[str, Output]]:
    """Token cache, model to start from, and the outputs of the stages before it."""
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


def _asked(run: WholeRun) -> str:
    """Return what the form of a run says, in one line, without passwords: it is kept in the store."""
    return redacted(run.line(but="resolve"))


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
    """Options that settle into others: these are settled already."""
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


def _differing(run: WholeRun, asked: Settings, asks: Settings) -> list[str]:
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


def _say(found: Finishing) -> None:
    log.warning(
        "this run finishes %s first, with the data and options that it began with; what is new since then is "
        "not in it. To leave it and train what the form says: train_unfinished=start-new",
        found.training,
    )
    if found.waits:
        log.warning("changed options that are not in it: %s", "; ".join(found.waits))


def _gives_up(store: ObjectStore, options: ResolveOptions, run: WholeRun, training: Training) -> bool:
    """Return whether a trained model has gone unjudged in too many runs; else note one more."""
    most = int(getattr(run.options[TRAIN], "stalled_runs", 0))
    count = training.stalled(training.checkpoint)
    if most and count >= most:
        why = f"trained, but {plural(count, 'run')} in a row could not judge it: see how they ended"
        _set_aside(store, options, training, GIVEN_UP, why)
        return True
    tried = training.tried(options.run_id, training.checkpoint)
    change_unfinished(store, options.channel, lambda record: record.with_(tried))
    return False


def _set_aside(store: ObjectStore, options: ResolveOptions, training: Training, state: str, why: str) -> None:
    change_unfinished(store, options.channel, lambda record: record.with_(training.aside(state, why)))
    log.error(
        "%s is %s and not finished: %s. This run trains what its form says. To take it up again, once that "
        "can be: a run whose form says %s",
        training,
        "set aside" if state == OUTDATED else state,
        why,
        resumed_by(training),
    )


def note_the_run(
    store: ObjectStore,
    options: ResolveOptions,
    run: WholeRun,
    finishing: Finishing | None,
    left: Sequence[Training],
) -> None:
    """Record what this run is about, before its first stage: a run that fails has left word of it."""
    if not options.run_id or TRAIN not in run.options:
        return
    said: dict[str, object] = {
        "training": "finish" if finishing else "new",
        "asked": _asked(run),
        "pipeline": _pipeline(run),
        "schedule": options.schedule,
        "left_alone": [{"training": str(one), "field": _field(one)} for one in left],
    }
    if finishing:
        training = finishing.training
        said["finishes"] = {
            name: getattr(training, name) for name in ("key", "step", "begun_at", "run_id", "state")
        }
        said["waits"] = list(finishing.waits)
    note_night(store, options.channel, options.run_id, said)
