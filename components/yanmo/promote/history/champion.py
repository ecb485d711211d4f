"""The champion of a channel: a pointer to a model, moved by compare-and-swap, and its history.

    pointers/<channel>/champion.json            reference of the champion's model
    pointers/<channel>/champion_evaluation.json its evaluation
    pointers/<channel>/history/                 see champion_records.py

The pointer counts: whoever moved it last says who is champion, and the history follows. A record is written
after the pointer moved and only while it still names that model: the writer reads the last number first,
the pointer then, and takes the next number, so that whoever moved the pointer since has either taken that
number or comes after it. A run that stood still in between ends with `ChampionChanged` and writes nothing.
What a run that is killed in between left undone, the next one does: it finds that its challenger is
champion and that the record is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from yanmo.common.errors import DataError, StorageError
from yanmo.promote.history.champion_records import ChampionRecord, last_record, write_record
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import open_named, pointer_name, read_pointer, swap_pointer
from yanmo.store.schema import utc_now

log = logging.getLogger(__name__)
CHAMPION = "champion"
CHAMPION_EVALUATION = "champion_evaluation"


class ChampionChanged(StorageError):
    """The channel got another champion while this run compared; compare again."""


class TakenDown(ChampionChanged):
    """The model is not champion: a person took it down while its promotion went on."""


def check_model(model: Output, who: str, advice: str = "") -> None:
    """Verify every file of a model.

    Raises:
        DataError: names the damaged file; says that no pointer was moved.
    """
    try:
        model.paths("*")
        missing = model.missing()  # the bucket's objects, of which this machine may only hold copies
        if missing:
            raise DataError(f"{missing}; run the train stage again with --force, or restore the file")
    except DataError as error:
        raise DataError(
            f"the {who}'s model is damaged, and the champion stays as it is: {error}{advice}"
        ) from error


def read_champion(store: ObjectStore, channel: str) -> tuple[Reference, Output] | None:
    """The champion pointer of a channel and the model it names, all of its files verified.

    Raises:
        DataError: the model is gone or damaged; says how to go on.
    """
    reference = read_pointer(store, channel, CHAMPION)
    if reference is None:
        return None
    back = (
        ". Or bring the champion before it back: `yanmo promote rollback --why damaged "
        f"--store {store.uri} --channel {channel}`"
    )
    try:
        model = open_named(store, reference, pointer_name(channel, CHAMPION))
    except DataError as error:
        raise DataError(f"the champion of channel {channel!r} cannot be read: {error}{back}") from error
    check_model(model, "champion", back)
    return reference, model


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """The challenger that a verdict would promote, and all that its record names."""

    model: Output
    evaluation: Output
    verdict: Output
    previous: Reference | None
    """What the champion pointer named when they were compared."""
    compared_with: Output | None
    """The evaluation of that champion."""
    who: str = ""
    """Who set it by hand, where a person did (setting.py)."""
    why: str = ""


def make_champion(store: ObjectStore, channel: str, promotion: Promotion) -> ChampionRecord:
    """Make the challenger champion, unless the pointer has moved since they were compared.

    Raises:
        ChampionChanged: it has; another promote, or a rollback, was faster.
    """
    model = promotion.model.reference
    _refuse_taken_down(store, channel, model)
    if not swap_pointer(store, channel, CHAMPION, promotion.previous, model):
        now = read_pointer(store, channel, CHAMPION)
        if now is None or now.content_digest != model.content_digest:
            raise ChampionChanged(
                f"channel {channel!r} got another champion meanwhile ({named(now)}); nothing was moved. "
                "The same command compares with that one"
            )
    elif promotion.previous is not None:
        try:  # the pointer cannot tell a champion that was never away from one that was brought back
            _refuse_taken_down(store, channel, model)
        except TakenDown:
            swap_pointer(store, channel, CHAMPION, model, promotion.previous)
            raise
    return settle(store, channel, promotion)


def settle(store: ObjectStore, channel: str, promotion: Promotion) -> ChampionRecord:
    """Complete what belongs to a promoted model: its record, and the pointer to its evaluation.

    Raises:
        ChampionChanged: it is not champion any more, and nothing was written.
    """
    model = promotion.model.reference
    record = append_record(store, channel, model, lambda last: _record(channel, promotion, last))
    settle_evaluation(store, channel, promotion.model, promotion.evaluation.reference)
    return record


def append_record(
    store: ObjectStore,
    channel: str,
    model: Reference,
    make: Callable[[ChampionRecord | None], ChampionRecord | None],
) -> ChampionRecord:
    """Enter into the history that `model` became champion, as long as the pointer names it.

    Args:
        make: the record to follow the last one; None where the last one says it already.

    Raises:
        ChampionChanged: it is not champion any more, and nothing was written.
    """
    while True:
        last = last_record(store, channel)
        now = read_pointer(store, channel, CHAMPION)  # after `last`: whoever moves it later writes later
        if now is None or now.content_digest != model.content_digest:
            _refuse_taken_down(store, channel, model)
            raise ChampionChanged(
                f"channel {channel!r} got another champion meanwhile ({named(now)}), and {named(model)} was "
                "not entered into the history. Look at `yanmo promote history`; the same command compares "
                "with that one"
            )
        record = make(last)
        if record is None:
            assert last is not None
            return last
        if write_record(store, channel, record):
            return record


def _refuse_taken_down(store: ObjectStore, channel: str, model: Reference) -> None:
    """Raise TakenDown where the history says that a person took a model down."""
    last = last_record(store, channel)
    if found := last.rollback_of(model.content_digest) if last else None:
        raise TakenDown(
            f"{named(model)} is not champion of channel {channel!r}: it was taken down {found}. To take that "
            "back: yanmo promote rollback --to NUMBER (yanmo promote history has the numbers)"
        )


def settle_evaluation(store: ObjectStore, channel: str, model: Output, evaluation: Reference) -> None:
    """Let `champion_evaluation` name an evaluation of the champion: `evaluation`, unless it does already."""
    if not is_measured(store, channel, model):
        name_beside_champion(store, channel, CHAMPION_EVALUATION, model.reference, evaluation)


def name_beside_champion(
    store: ObjectStore, channel: str, name: str, model: Reference, reference: Reference
) -> None:
    """Let a pointer that goes with the champion name `reference`, as long as `model` is the champion.

    Where another model was promoted meanwhile, its promotion sets the pointer, and this leaves it alone: the
    pointer is read before the champion and moved only if nobody moved it since. A rollback may find that the
    pointer is right for its model and move nothing, so the champion is read once more afterwards, and what
    stood there is put back if it changed.
    """
    while True:
        found = read_pointer(store, channel, name)
        if not _is_champion(store, channel, model):
            return
        if found == reference:
            return
        if swap_pointer(store, channel, name, found, reference):
            if found is not None and not _is_champion(store, channel, model):
                swap_pointer(store, channel, name, reference, found)
            return


def _is_champion(store: ObjectStore, channel: str, model: Reference) -> bool:
    champion = read_pointer(store, channel, CHAMPION)
    return champion is not None and champion.content_digest == model.content_digest


def is_measured(store: ObjectStore, channel: str, model: Output) -> bool:
    """Return whether `champion_evaluation` names an evaluation of a model.

    Raises:
        DataError: the pointer is damaged.
    """
    pointer = read_pointer(store, channel, CHAMPION_EVALUATION)
    return pointer is not None and _measures(store, pointer, model)


def _record(channel: str, promotion: Promotion, last: ChampionRecord | None) -> ChampionRecord | None:
    """The record of a promotion, to follow `last`; None where that is about this model."""
    model, previous = promotion.model.reference, promotion.previous
    if last is not None and last.model.content_digest == model.content_digest:
        return None
    if last is not None and last.rollback_of(model.content_digest):
        raise DataError(  # no verdict makes it champion: a rollback to it stands between pointer and record
            f"a rollback to {named(model)} was not entered into the history of channel {channel!r}; finish "
            "it by `yanmo promote rollback --to NUMBER` (yanmo promote history has the numbers)"
        )
    if previous and previous.content_digest == model.content_digest:  # the pointer had moved before a kill
        previous = last.model if last else None
    return ChampionRecord(
        number=last.number + 1 if last else 1,
        champion_since=utc_now(),
        model=model,
        evaluation=promotion.evaluation.reference,
        verdict=promotion.verdict.reference,
        previous=previous,
        compared_with=promotion.compared_with.reference if promotion.compared_with else None,
        who=promotion.who,
        why=promotion.why,
        rolled_back=last.rolled_back if last else (),
    )


def _measures(store: ObjectStore, evaluation: Reference, model: Output) -> bool:
    try:
        measured = open_reference(store, evaluation).input("model")
    except DataError as error:
        log.warning("pointer %s names nothing readable (%s); moving it", CHAMPION_EVALUATION, error)
        return False
    return measured is not None and measured.content_digest == model.content_digest


def named(reference: Reference | None) -> str:
    """A reference as a person reads it: `train/3f9a0c...`."""
    return f"{reference.stage}/{reference.key[:12]}" if reference else "none"
