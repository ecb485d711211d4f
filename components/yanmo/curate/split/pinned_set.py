"""The evaluation set of a channel: chosen once, pinned by its pointer, and added to only where asked."""

from __future__ import annotations

import logging
from typing import NoReturn

from yanmo.common.errors import DataError, StorageError, UsageError
from yanmo.curate.config import CurateOptions
from yanmo.curate.mapped_corpus import MAP, CurateRun, Handed, corpus_of, of_phases
from yanmo.curate.split.evaluation_set import EvaluationSet, build_evaluation_set
from yanmo.curate.split.extended_set import add_confirmation, add_genres, new_genres
from yanmo.curate.text.record_rules import record_rules
from yanmo.formats.records import CONFIRM
from yanmo.options.fields import NONE, names_of
from yanmo.stage.stage_run import KeyInput, Skip
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import create_pointer, read_pointer, swap_pointer

log = logging.getLogger(__name__)

EVALUATION_SET = "evaluation_set"
EVALUATION_SET_REVISION = 6
"""Raised when the same text and options give another evaluation set."""

ADDED = (*MAP, "clusters", "confirm", "files")
"""Phases whose options an added confirmation split depends on."""
CHOSEN = (*ADDED, "split")
"""Phases whose options an evaluation set depends on."""


def choose_evaluation_set(run: CurateRun, made: Handed, inputs: dict[str, KeyInput]) -> Output:
    """The evaluation set chosen from this text; it is pinned when the documents are there."""
    options = run.options
    semantic, of_the_key = of_phases(options, CHOSEN)

    def build(attempt: Attempt) -> Result:
        return build_evaluation_set(attempt, corpus_of(run, made), of_the_key)

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


def add_to_set(run: CurateRun, made: Handed, pinned: Output | None, inputs: dict[str, KeyInput]) -> NoReturn:
    """Pin a set with the same files and more, chosen from this text: see extended_set.py."""
    options = run.options
    if pinned is None:
        raise DataError(
            f"channel {options.channel!r} of {run.store.uri} has no evaluation set to add to; its first "
            "`yanmo curate` chooses one, with all genres and a confirmation split"
        )
    if options.add_confirmation and pinned.entries(f"{CONFIRM}-*.parquet"):
        raise Skip(f"{pinned} already has a confirmation split")
    if options.pointer != NONE:
        _check_is_channels(run, pinned)
    _check_form(pinned, options)
    if options.add_genres and not new_genres(pinned, corpus_of(run, made)):
        raise Skip(f"{pinned} already has texts of every genre of --sources")
    semantic, of_the_key = of_phases(options, ADDED if options.add_confirmation else CHOSEN)
    add = add_confirmation if options.add_confirmation else add_genres

    def build(attempt: Attempt) -> Result:
        corpus = corpus_of(run, made)
        known = EvaluationSet.open(pinned, options.split_by)
        is_held = known.holds(corpus, options.near_duplicate_similarity, options.workers)
        return add(attempt, pinned, corpus, is_held, of_the_key)

    inputs = {name: value for name, value in inputs.items() if name != "benchmarks"}
    part = run.part(
        EVALUATION_SET, EVALUATION_SET_REVISION, semantic, {**inputs, EVALUATION_SET: pinned}, build
    )
    log.info("%s: %s with %s", part, pinned, _more(part, pinned))
    if options.pointer == NONE:
        raise Skip(f"--pointer none: {part} is not pinned")
    if not swap_pointer(run.store, options.channel, EVALUATION_SET, pinned.reference, part.reference):
        now = read_pointer(run.store, options.channel, EVALUATION_SET)
        if now != part.reference:
            raise StorageError(
                f"the evaluation set of channel {options.channel!r} is not {pinned} any more (another run "
                "pinned one meanwhile); nothing was moved: run the same command again"
            )
    raise Skip(
        f"{part} is pinned, and {options.adding} makes nothing else; the next `yanmo curate` of channel "
        f"{options.channel!r} keeps the new texts out of training"
    )


def _more(part: Output, pinned: Output) -> str:
    """What a set has more than the one that it was made from, in words."""
    before = pinned.manifest.counts["documents"]
    added = {
        split: {genre: number for genre, number in of.items() if genre not in before.get(split, {})}
        for split, of in part.manifest.counts["documents"].items()
    }
    return "; ".join(
        f"{split}: {sum(of.values())} new texts ({', '.join(f'{g} {n}' for g, n in of.items())})"
        for split, of in added.items()
        if of
    )


def _check_is_channels(run: CurateRun, pinned: Output) -> None:
    """Refuse, before any work, to add to a set that is not the channel's: its pointer could not be moved.

    A set that an earlier attempt made from it already belongs to the channel.
    """
    channel = run.options.channel
    now = read_pointer(run.store, channel, EVALUATION_SET)
    if now == pinned.reference:
        return
    made_from = open_reference(run.store, now).manifest.inputs.get(EVALUATION_SET) if now else None
    if made_from and made_from.get("content_digest") == pinned.content_digest:
        return
    found = f"{now.stage}/{now.key[:12]}" if now else "not set"
    raise UsageError(
        f"{run.options.adding}: --evaluation-set names {pinned}, expected the set of channel {channel!r} "
        f"({found}); leave --evaluation-set out, or give --pointer none to make the set without pinning it"
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
