"""Options of a training's length that settle into others: --epochs, --warmup-share, of one that goes on.

They are in no key: what they make of the others is. So are the steps of a small text where nobody gives any.
Two readings were the best of those measured: trainings of 1, 2, 4 and 8.15 readings of 183 notes (0.19 M
tokens, size tiny) ended at 3.49, 3.21, 3.41 and 4.17 bits per character of text that they had not seen.
Muennighoff et al. ("Scaling Data-Constrained Language Models", arXiv 2305.16264) find up to 4 readings nearly
as good as new text, with models of a size that fits the text; tiny has 23 parameters for each token here.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Collection
from typing import Any

from yanmo.common.words import plural
from yanmo.options.fields import flag, names_of, spelled
from yanmo.train.config import TrainConfig
from yanmo.train.schedule import ContinuedOptions, ScheduleOptions

log = logging.getLogger(__name__)
RATES = ("muon_learning_rate", "adam_learning_rate", "head_learning_rate", "norm_learning_rate")
READINGS, LEAST_STEPS = 2, 50
"""How often a text is read, at most, where nobody gives the steps; and the steps that it has in any case."""
_DIGITS = 12


def with_length(
    options: TrainConfig,
    given: Collection[str],
    *,
    goes_on: bool,
    tokens_of_the_text: Callable[[], int],
    rows_of_an_epoch: Callable[[], int],
) -> TrainConfig:
    """Return the options that a training really has, with those of its length settled into the others.

    Args:
        given: options that somebody gave, or a preset: a warm-up that none did follows from the steps.
        goes_on: whether it starts from a model.
        tokens_of_the_text: says how many there are for training; called where nobody gave the steps.
        rows_of_an_epoch: counts the rows of the text; called where --epochs is given.

    Raises:
        UsageError: the others do not allow it.
    """
    epochs, share = options.epochs, options.warmup_share
    changes: dict[str, Any] = {"epochs": 0.0, "warmup_share": 0.0}
    if epochs:
        rows = rows_of_an_epoch()
        changes["steps"] = max(1, math.ceil(epochs * rows / options.batch_rows))
        log.info(
            "--epochs %g: %s of %d of %s",
            epochs,
            plural(changes["steps"], "step"),
            options.batch_rows,
            plural(rows, "row"),
        )
    elif "steps" not in given and not goes_on:
        tokens, step = tokens_of_the_text(), options.batch_rows * options.context
        steps = max(LEAST_STEPS, math.ceil(READINGS * tokens / step))
        if steps < options.steps:
            changes["steps"] = steps
            log.info(
                "--steps %d: the text of %s tokens is read %.1f times; give --steps for more",
                steps,
                f"{tokens:,}",
                steps * step / tokens,
            )
    if "steps" in changes and "warmup_steps" not in given:
        changes |= ScheduleOptions.left_open(changes)
    if "steps" in changes or share:
        options = dataclasses.replace(options, **changes)
    options = as_continued(options, given, goes_on=goes_on)
    if share:
        warm = max(1, round(share * options.steps))
        log.info("--warmup-share %g: %d of %s", share, warm, plural(options.steps, "step"))
        options = dataclasses.replace(options, warmup_steps=warm)
    return options


def as_continued(options: TrainConfig, given: Collection[str], *, goes_on: bool) -> TrainConfig:
    """Return the options that a training really has, with those of this group settled into the others.

    Args:
        given: options that somebody gave: a warm-up that nobody did follows from the steps.
        goes_on: whether it starts from a model.

    Raises:
        UsageError: the others do not allow it.
    """
    own = {name: getattr(options, name) for name in names_of(ContinuedOptions)}
    defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(ContinuedOptions)}
    said = {name: value for name, value in own.items() if value != defaults[name]}
    if not said:
        return options
    shown = ", ".join(f"{flag(name)} {spelled(value)}" for name, value in said.items())
    if not goes_on:
        log.info("a new model is trained: %s is for one that goes on", shown)
        return dataclasses.replace(options, **defaults)
    changes: dict[str, Any] = {"steps": options.continued_steps or options.steps}
    if "warmup_steps" not in given:
        changes["warmup_steps"] = ScheduleOptions.left_open(changes)["warmup_steps"]
    rates = {name: getattr(options, name) * options.continued_peak for name in RATES}
    changes |= {name: float(f"{rate:.{_DIGITS}g}") for name, rate in rates.items()}
    log.info(
        "the training goes on from a model, with %s: %s, %s of them warm-up, muon_learning_rate %g",
        shown,
        plural(changes["steps"], "step"),
        changes.get("warmup_steps", options.warmup_steps),
        changes["muon_learning_rate"],
    )
    return dataclasses.replace(options, **defaults, **changes)
