"""Which training this run finishes, of those that earlier runs of the channel began.

One training a run: the run that finishes an earlier one judges that model, and new data and changed options
wait for the next run. What the training was begun with is handed over by what this task hands over anyway:
the line of options (`train`'s as they were; to `curate`, `balance` and `tokenize` the output that they hand
on, so that they make nothing) and the model to start from.

Where it may not be finished any more (begun_training.py), the training is set aside, and this run makes its
own data. It is never finished by itself then; its checkpoints stay until gc takes them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from yanmo.common.errors import DataError
from yanmo.common.words import plural
from yanmo.options.one_line import read_line
from yanmo.resolve.begun_training import (
    TRAIN,
    Finishing,
    Outdated,
    asked_line,
    differing,
    finishing_of,
    night_of,
)
from yanmo.resolve.config import ResolveOptions
from yanmo.stage.form import WholeRun
from yanmo.store.objects import ObjectStore
from yanmo.store.output import find_by_digits
from yanmo.store.runs.run_record import note_night
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


def training_to_finish(
    store: ObjectStore, options: ResolveOptions, run: WholeRun
) -> tuple[Finishing | None, list[Training]]:
    """Return the channel's unfinished training that this run finishes, and those that are left alone.

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
        log.warning(
            "%s is left alone: a run with other options began it. To finish it: %s", one, resumed_by(one)
        )
    for training in ours:
        try:
            found = finishing_of(store, options, run, training)
        except Outdated as why:
            _set_aside(store, options, training, OUTDATED, str(why))
            continue
        if training.state == TRAINED and _gives_up(store, options, training):
            continue
        _say(found)
        return found, others
    return None, others


def _is_ours(store: ObjectStore, options: ResolveOptions, run: WholeRun, training: Training) -> bool:
    """Return whether this run's schedule began it, or a run that asked the same, or it is given to all."""
    if training.by_next:
        return True
    night = night_of(store, options.channel, training)
    if options.schedule and night.get("schedule") == options.schedule:
        return True
    asked = str(night.get("asked", ""))
    if not asked or night.get("pipeline") != _pipeline(run):
        return False
    return not differing(run, read_line(asked), read_line(asked_line(run)))


def _pipeline(run: WholeRun) -> str:
    """Return what tells a pipeline from another: its stages."""
    return " ".join(run.options)


def _leave(store: ObjectStore, options: ResolveOptions, trainings: Sequence[Training]) -> None:
    """Set aside what this run would have to finish."""
    why = f"left by run {options.run_id or 'without an id'}, which was told to"

    def leave(record: Unfinished) -> Unfinished:
        for one in trainings:
            record = record.with_((record.of(one.key) or one).aside(LEFT, why))
        return record

    for one in trainings:
        log.warning("%s is left as it is; %s finishes it", one, resumed_by(one))
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
    found = finishing_of(store, options, run, training.resumed())

    def resume(record: Unfinished) -> Unfinished:
        return record.with_((record.of(training.key) or training).resumed(), first=True)

    change_unfinished(store, options.channel, resume)
    _say(found)
    return found


def _say(found: Finishing) -> None:
    log.warning(
        "this run finishes %s first, with the data and options that it began with; what is new since then is "
        "not in it. To leave it and train what the form says: train_unfinished=start-new",
        found.training,
    )
    if found.waits:
        log.warning("changed options that are not in it: %s", "; ".join(found.waits))


def _gives_up(store: ObjectStore, options: ResolveOptions, training: Training) -> bool:
    """Return whether a trained model has gone unjudged in too many runs; else note one more."""
    if training.is_stalled:
        count = training.stalled(training.checkpoint)
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
        "asked": asked_line(run),
        "pipeline": _pipeline(run),
        "schedule": options.schedule,
        "left_alone": [{"training": str(one), "field": resumed_by(one)} for one in left],
    }
    if finishing:
        training = finishing.training
        said["finishes"] = {
            name: getattr(training, name) for name in ("key", "step", "begun_at", "run_id", "state")
        }
        said["waits"] = list(finishing.waits)
    note_night(store, options.channel, options.run_id, said)
