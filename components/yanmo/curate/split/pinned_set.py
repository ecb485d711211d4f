"""The evaluation set of a channel: chosen once, pinned by its pointer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from yanmo.common.errors import DataError, StorageError
from yanmo.curate.config import MAP, CurateOptions, of_phases
from yanmo.curate.corpus import Corpus
from yanmo.curate.split.evaluation_set import build_evaluation_set
from yanmo.curate.text.record_rules import record_rules
from yanmo.options.fields import NONE, names_of
from yanmo.stage.stage_run import KeyInput, StageRun
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import create_pointer

log = logging.getLogger(__name__)
CurateRun = StageRun[CurateOptions, Any]

EVALUATION_SET = "evaluation_set"
EVALUATION_SET_REVISION = 7
"""Raised when the same text and options give another evaluation set."""

CHOSEN = (*MAP, "clusters", "confirm", "files", "split")
"""Phases whose options an evaluation set depends on."""


def choose_evaluation_set(
    run: CurateRun, corpus_of: Callable[[], Corpus], inputs: dict[str, KeyInput]
) -> Output:
    """Return the evaluation set chosen from this text; it is pinned when the documents are there."""
    options = run.options
    semantic, of_the_key = of_phases(options, CHOSEN)

    def build(attempt: Attempt) -> Result:
        return build_evaluation_set(attempt, corpus_of(), of_the_key)

    inputs = {name: value for name, value in inputs.items() if name != "benchmarks"}
    return run.part(EVALUATION_SET, EVALUATION_SET_REVISION, semantic, inputs, build)


def pin_chosen(run: CurateRun, part: Output) -> None:
    """Pin the set that a run has chosen, once its documents are committed: one that fails pins none.

    Raises:
        StorageError: another run pinned another one meanwhile.
    """
    options = run.options
    if NONE in (options.pointer, options.evaluation_set) or run.inputs[EVALUATION_SET] is not None:
        return
    pinned = create_pointer(run.store, options.channel, EVALUATION_SET, part.reference)
    if pinned != part.reference:
        raise StorageError(
            f"another run pinned {open_reference(run.store, pinned)} for channel {options.channel!r}; no "
            "pointer was moved: run the same command again, and it keeps that set out of training"
        )


def _check_form(pinned: Output, options: CurateOptions) -> None:
    form = pinned.manifest.metadata.get("text_form")
    wanted = record_rules(options).form
    if form != wanted:
        raise DataError(
            f"{pinned}: the pinned evaluation set is in text form {form}, this run writes {wanted}; "
            "results would not be comparable: use another --channel, or choose a new set with "
            "--evaluation-set none"
        )


def check_pinned(pinned: Output, options: CurateOptions) -> None:
    _check_form(pinned, options)
    chosen_with = pinned.manifest.options
    for name in sorted(names_of(CurateOptions, phase=("confirm", "split"))):
        if name in chosen_with and chosen_with[name] != getattr(options, name):
            log.warning(
                "--%s has no effect: evaluation set %s is pinned; it was chosen with %s",
                name.replace("_", "-"),
                pinned,
                chosen_with[name],
            )
