"""What a channel is told of a training, so that its next run finishes it (store/runs/unfinished.py).

A training is noted when its work begins, and again when its model is committed: from then on it waits to be
judged. It is given up where some runs in a row found no newer checkpoint than the one before: at the end of
the last of them, or, where that was killed, at the beginning of the next. Only runs of a pipeline count: they
have an id, and nobody looks at them.
"""

from __future__ import annotations

import dataclasses
import logging
import textwrap

from yanmo.common.errors import DataError, EnvironmentFault, advice
from yanmo.options.fields import NONE, by_kind
from yanmo.store.opening import store_of
from yanmo.store.output import Output, Pause
from yanmo.store.record import utc_now
from yanmo.store.runs.failure_card import Card, keep_card
from yanmo.store.runs.unfinished import (
    GIVEN_UP,
    MOST_STALLED,
    OPEN,
    TRAINED,
    GivenUp,
    Training,
    Unfinished,
    change_unfinished,
    read_unfinished,
    resumed_by,
)
from yanmo.train.config import STAGE, TrainConfig
from yanmo.train.supervision.machine_check import TrainRun

log = logging.getLogger(__name__)
_LONGEST_END = 160
"""Characters of how the last run ended: its own card has the rest."""


def begins(run: TrainRun, checkpoint: str) -> None:
    """Note that this run begins the training, or goes on with it.

    Args:
        checkpoint: label of the newest checkpoint, here or in the store; "" for none.

    Raises:
        GivenUp: the channel has given it up, or does so now.
    """
    options: TrainConfig = run.options
    if not _counts(options):
        return

    def noted(record: Unfinished) -> Unfinished:
        training = record.of(run.key) or _training(run)
        if training.state == GIVEN_UP:
            return record
        if not training.is_open:  # the same again by this run's form, which may have got its texts otherwise
            training = dataclasses.replace(training, run_id=options.run_id, begun_at=utc_now())
        tries = training.stalled(checkpoint, but=options.run_id)
        if tries >= MOST_STALLED:
            return record.with_(training.aside(GIVEN_UP, _no_progress(training, tries)))
        tried = training.tried(options.run_id, checkpoint)
        return record.with_(dataclasses.replace(tried, state=OPEN, why=""))

    found = change_unfinished(run.store, options.channel, noted).of(run.key)
    if found is not None and found.state == GIVEN_UP:
        raise GivenUp(_sentence(found))


def ends(run: TrainRun, checkpoint: str) -> None:
    """Note how far this run came; whatever it ends with, that is more important than an error here."""
    try:
        _came_to(run, checkpoint)
    except (OSError, DataError, EnvironmentFault) as error:
        log.debug("could not note how far the training came: %s", error)


def pauses(run: TrainRun, checkpoint: str, pause: Pause) -> None:
    """Note that this run pauses.

    Raises:
        GivenUp: it is the last of too many that came no further: a window that is too short, say.
    """
    training = _came_to(run, checkpoint)
    if training is not None and training.is_stalled:
        raise GivenUp(_give_up(run.options, training, f"{pause.why}, at {pause.where}"))


def failed(options: TrainConfig, error: Exception) -> GivenUp | None:
    """Give the training up that this run worked on, where it is the last of too many that came no further.

    Returns:
        The error that says so; None where it is not given up here.
    """
    if not _counts(options) or isinstance(error, GivenUp):
        return None
    given_up: GivenUp | None = None
    try:
        record = read_unfinished(store_of(options), options.channel)
        mine = [one for one in record.open if one.tries and one.tries[-1].run_id == options.run_id]
        for training in (one for one in mine if one.state == OPEN and one.is_stalled):
            given_up = GivenUp(_give_up(options, training, advice(error)))
            log.error("%s", given_up)
            card = Card.of(STAGE.name, given_up, run_id=options.run_id)
            keep_card(store_of(options), training.key, card, error)
    except (OSError, DataError, EnvironmentFault) as problem:  # maybe what ended the run
        log.debug("could not note that the run failed: %s", problem)
    return given_up


def is_trained(run: TrainRun, output: Output) -> None:
    """Note that the model is committed: the channel's next run judges it, unless this one does.

    One that was set aside was finished by hand, by somebody who knows what to do with it.
    """

    def noted(record: Unfinished) -> Unfinished:
        training = record.of(output.manifest.key)
        if training is None or training.state == TRAINED:
            return record
        if not training.is_open:
            return record.without(training.key)
        return record.with_(dataclasses.replace(training, state=TRAINED, tries=()))

    if run.options.pointer != NONE:
        change_unfinished(run.store, run.options.channel, noted)


def _counts(options: TrainConfig) -> bool:
    return bool(options.run_id) and options.pointer != NONE


def _training(run: TrainRun) -> Training:
    options: TrainConfig = run.options
    inputs = {name: run.inputs[name] for name in ("token_cache", "model")}
    return Training(
        key=run.key,
        revision=STAGE.revision,
        options=by_kind(options, "semantic"),
        execution=by_kind(options, "execution"),
        inputs={name: output.reference if output else None for name, output in inputs.items()},
        run_id=options.run_id,
    )


def _came_to(run: TrainRun, checkpoint: str) -> Training | None:
    """Return the training as it is noted now; None where it is not."""
    if not _counts(run.options):
        return None

    def noted(record: Unfinished) -> Unfinished:
        training = record.of(run.key)
        if training is None or not training.is_open:
            return record
        return record.with_(dataclasses.replace(training, checkpoint=checkpoint))

    return change_unfinished(run.store, run.options.channel, noted).of(run.key)


def _no_progress(training: Training, tries: int) -> str:
    at = f"step {training.step}" if training.checkpoint else "its beginning"
    return f"{tries} runs in a row came no further than {at}"


def _give_up(options: TrainConfig, training: Training, ended: str) -> str:
    """Set the training aside; return the sentence that says so."""
    tries = training.stalled(training.checkpoint)
    why = f"{_no_progress(training, tries)}; the last one ended with: {textwrap.shorten(ended, _LONGEST_END)}"
    given_up = training.aside(GIVEN_UP, why)
    change_unfinished(store_of(options), options.channel, lambda record: record.with_(given_up))
    return _sentence(given_up)


def _sentence(training: Training) -> str:
    """Return the sentence about a training that is given up: first what to do, as cards are cut."""
    return (
        f"{training} is given up: {training.why}. Once the cause is mended, a run of the channel whose form "
        f"says {resumed_by(training)} goes on with it. Until then a run trains what its form says, where new "
        "data or other options make that another model"
    )
