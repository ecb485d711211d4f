"""The champion of a channel: a pointer to a model, moved by compare-and-swap, and its history.

    pointers/<channel>/champion.json            reference of the champion's model
    pointers/<channel>/champion_evaluation.json its evaluation
    pointers/<channel>/champion_evaluation_writing.json
                                                how it writes, for the page
    pointers/<channel>/history/                 see champion_records.py
    pointers/<channel>/records/held.json        who won and waits for a person: see holding.py, approval.py

The pointer counts; a record is written after it moved. What a run that is killed in between left undone, the
next one does: it finds that its challenger is champion and that the record is missing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from yanmo.common.errors import DataError, StorageError
from yanmo.promote.history.champion_records import ChampionRecord, RolledBack, last_record, write_record
from yanmo.store.channel.held import read_held
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, open_reference, read_json
from yanmo.store.pointers import open_named, pointer_name, read_pointer, swap_pointer
from yanmo.store.schema import utc_now

log = logging.getLogger(__name__)
CHAMPION = "champion"
CHAMPION_EVALUATION = "champion_evaluation"
CHAMPION_WRITING = "champion_evaluation_writing"
"""The part `writing` of that evaluation, as `--pointer champion_evaluation` names it."""


class ChampionChanged(StorageError):
    """The channel got another champion while this run compared; compare again."""


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
    """Who approved it, where a person did."""
    why: str = ""


def make_champion(store: ObjectStore, channel: str, promotion: Promotion) -> ChampionRecord:
    """Make the challenger champion, unless the pointer has moved since they were compared.

    Raises:
        ChampionChanged: it has; another promote, or a rollback, was faster.
    """
    if not swap_pointer(store, channel, CHAMPION, promotion.previous, promotion.model.reference):
        now = read_pointer(store, channel, CHAMPION)
        if now is None or now.content_digest != promotion.model.content_digest:
            raise ChampionChanged(
                f"channel {channel!r} got another champion meanwhile ({named(now)}); nothing was moved. "
                "The same command compares with that one"
            )
    return settle(store, channel, promotion)


def settle(store: ObjectStore, channel: str, promotion: Promotion) -> ChampionRecord:
    """Complete what belongs to a promoted model: its record, and the pointer to its evaluation."""
    record = last_record(store, channel)
    if record is None or record.model.content_digest != promotion.model.content_digest:
        record = _append(store, channel, promotion, record)
    settle_evaluation(store, channel, promotion.model, promotion.evaluation.reference)
    return record


def settle_evaluation(store: ObjectStore, channel: str, model: Output, evaluation: Reference) -> None:
    """Let `champion_evaluation` name an evaluation of the champion: `evaluation`, unless it does already."""
    if not is_measured(store, channel, model):
        name_beside_champion(store, channel, CHAMPION_EVALUATION, model.reference, evaluation)


def name_beside_champion(
    store: ObjectStore, channel: str, name: str, model: Reference, reference: Reference
) -> None:
    """Let a pointer that goes with the champion name `reference`, as long as `model` is the champion.

    Where another model was promoted meanwhile, its promotion sets the pointer, and this leaves it alone: the
    pointer is read before the champion and moved only if nobody moved it since.
    """
    while True:
        found = read_pointer(store, channel, name)
        champion = read_pointer(store, channel, CHAMPION)
        if champion is None or champion.content_digest != model.content_digest:
            return
        if found == reference or swap_pointer(store, channel, name, found, reference):
            return


def is_measured(store: ObjectStore, channel: str, model: Output) -> bool:
    """Whether `champion_evaluation` names an evaluation of a model.

    Raises:
        DataError: the pointer is damaged.
    """
    pointer = read_pointer(store, channel, CHAMPION_EVALUATION)
    return pointer is not None and _measures(store, pointer, model)


def _append(
    store: ObjectStore, channel: str, promotion: Promotion, last: ChampionRecord | None
) -> ChampionRecord:
    previous = promotion.previous
    if (
        previous and previous.content_digest == promotion.model.content_digest
    ):  # the pointer had moved before a kill
        previous = last.model if last else None
    who, why = _signature(store, channel, promotion)
    record = ChampionRecord(
        number=last.number + 1 if last else 1,
        champion_since=utc_now(),
        model=promotion.model.reference,
        evaluation=promotion.evaluation.reference,
        verdict=promotion.verdict.reference,
        previous=previous,
        compared_with=promotion.compared_with.reference if promotion.compared_with else None,
        who=who,
        why=why,
        rolled_back=_marked(promotion, last.rolled_back if last else ()),
    )
    if not write_record(store, channel, record):  # another run of the same promotion wrote it
        found = last_record(store, channel)
        assert found is not None
        return found
    return record


def _marked(promotion: Promotion, before: tuple[RolledBack, ...]) -> tuple[RolledBack, ...]:
    """The models that are taken down, with a champion that learned what its channel forbids."""
    verdict = read_json(promotion.verdict, "verdict.json")
    model = verdict.get("replaces")
    if not model or any(one.model == model for one in before):
        return before
    why = f"learned what the channel forbids: {verdict['replaces_why']}"
    return (*before, RolledBack(model=model, when=utc_now(), who="the channel's lists", why=why))


def _signature(store: ObjectStore, channel: str, promotion: Promotion) -> tuple[str, str]:
    """Who approved the promotion, and why; also where the approval was killed once the pointer had moved."""
    if promotion.who:
        return promotion.who, promotion.why
    entry = read_held(store, channel).of(promotion.model.content_digest)
    return (entry.who, entry.why) if entry and entry.state in ("signed", "approved") else ("", "")


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
