"""A person's decision about a model that waits: approve or reject, signed, by compare-and-swap.

Approving writes, in this order: the signature into records/held.json, the champion pointer, the record in the
history with the signature, the pointer to the evaluation, and that all is done. Killed in between, the same
command goes on where it stopped, with the first signature; a promote that finds the model champion without a
record writes it with that signature. A person who may not move the champion leaves no signature.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass

from yanmo.common.errors import DataError, EnvironmentFault, UsageError
from yanmo.common.logs import plural
from yanmo.formats.forbidden_text import forbidden_in
from yanmo.promote.history.champion import (
    CHAMPION,
    CHAMPION_WRITING,
    ChampionChanged,
    Promotion,
    TakenDown,
    check_model,
    make_champion,
    name_beside_champion,
    named,
    settle,
)
from yanmo.promote.history.champion_records import ChampionRecord, last_record, shown_time
from yanmo.promote.history.holding import compare_again, expired, place_of, stale, waiting_names
from yanmo.store.channel.held import Entry, Held, move, read_held
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import SHORTEST_KEY, Output, open_reference, read_json
from yanmo.store.pointers import read_pointer
from yanmo.store.schema import utc_now

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Signature:
    """Who decides, and why."""

    who: str
    why: str


def choose(store: ObjectStore, channel: str, what: str) -> Entry:
    """The entry that a person means.

    Args:
        what: `train/KEY` of the model, `evaluate/KEY` or `promote/KEY` of its comparison, the first digits of
            which are enough; "" for the only one that waits.

    Raises:
        DataError: nothing waits, or not this.
        UsageError: it may be one of several.
    """
    held, champion, now = read_held(store, channel), read_pointer(store, channel, CHAMPION), time.time()
    where = f"channel {channel!r} of {store.uri}"
    found = _named(held, what) if what else held.open(now)
    if not found and what:
        names = waiting_names(held.open(now), champion, now) or "none"
        raise DataError(f"{what}: no such model was held in {where}; those that wait: {names}")
    if not found:
        raise DataError(
            f"nothing waits to be approved in {where}; `yanmo promote --hold` lets a winner wait, and `yanmo "
            "promote history` shows what became of those before"
        )
    if len(found) > 1:
        ready = [e for e in found if e.standing(champion, now) in ("waits", "signed")]
        names = waiting_names(found, champion, now)
        if what or len(ready) != 1:
            raise UsageError(f"{plural(len(found), 'model')} wait in {where}: {names}; name one: train/KEY")
        log.info("of %s, %s can be approved", names, named(ready[0].model))
        found = ready
    return found[0]


def _named(held: Held, what: str) -> list[Entry]:
    stage, _, digits = what.partition("/")
    if stage not in ("train", "evaluate", "promote") or len(digits) < SHORTEST_KEY:
        raise UsageError(
            f"{what[:100]!r}: expected train/KEY of a model that waits, as `yanmo promote history` shows it"
        )
    of = {"train": "model", "evaluate": "evaluation", "promote": "verdict"}[stage]
    return [e for e in held.entries if getattr(e, of).key.startswith(digits)]


def approve(store: ObjectStore, channel: str, entry: Entry, signature: Signature) -> ChampionRecord:
    """Make a held model champion.

    Raises:
        DataError: it cannot be approved; says why and what to run.
    """
    record = _approved_before(store, channel, entry)
    if record is not None:
        return record
    promotion = _promotion(store, channel, entry)
    signed = _signed(store, channel, entry, signature)
    promotion = dataclasses.replace(promotion, who=signed.who, why=signed.why)
    try:
        record = make_champion(store, channel, promotion)
    except TakenDown as error:  # it was champion, if only for a moment: the approval is done with
        _close(store, channel, signed)
        raise DataError(str(error)) from error
    except ChampionChanged as error:
        _unsign(store, channel, signed)
        raise DataError(_stale(store, channel, entry)) from error
    except EnvironmentFault as error:  # this person may not move the champion: no signature stays
        _unsign(store, channel, signed)
        raise EnvironmentFault(
            f"{error}. Nothing was moved, and {named(entry.model)} still waits: a person who may write "
            f"pointers/{channel}/champion.json and history/ has to approve it (docs/approval.md)"
        ) from error
    _close(store, channel, signed)
    return record


def _approved_before(store: ObjectStore, channel: str, entry: Entry) -> ChampionRecord | None:
    """The record of a model that is champion already, completed where an approval was killed."""
    champion = read_pointer(store, channel, CHAMPION)
    if champion is None or champion.content_digest != entry.model.content_digest:
        return None
    model = open_reference(store, entry.model)
    record = settle(store, channel, _opened(store, entry, model, entry.previous))
    _close(store, channel, entry)
    return record


def _promotion(store: ObjectStore, channel: str, entry: Entry) -> Promotion:
    """What is approved, once everything about it was looked at again.

    Raises:
        DataError: the entry, its comparison or its model is not good any more.
    """
    champion, name = read_pointer(store, channel, CHAMPION), named(entry.model)
    if entry.state == "rejected":
        log.warning("%s was rejected by %s, %s: %s", name, entry.who, shown_time(entry.decided_at), entry.why)
    as_waiting = dataclasses.replace(entry, state="waiting") if entry.state == "rejected" else entry
    standing = as_waiting.standing(champion, time.time())
    if standing == "expired":
        raise DataError(f"{expired(entry)}: make a new one. {_compare_again(store, channel, entry)}")
    if standing == "stale":
        raise DataError(_stale(store, channel, entry))
    if standing in ("approved", "withdrawn"):
        why = (
            f"was approved by {entry.who} before"
            if standing == "approved"
            else f"waits no longer: {entry.why}"
        )
        raise DataError(
            f"{name} {why}, and is not the champion now: make a new comparison. "
            f"{_compare_again(store, channel, entry)}"
        )
    last = last_record(store, channel)
    taken_down = last.rollback_of(entry.model.content_digest) if last else None
    if taken_down:
        raise DataError(
            f"{name} was taken down {taken_down}; to take that back: yanmo promote rollback --to NUMBER "
            f"{place_of(store, channel)} (yanmo promote history has the numbers)"
        )
    model = open_reference(store, entry.model)
    check_model(model, "held model")
    if found := forbidden_in(store, channel, model):
        raise DataError(f"{name} may not be served: {'; '.join(found)}. Reject it; see docs/licences.md")
    promotion = _opened(store, entry, model, champion)
    _check_verdict(promotion, entry)
    return promotion


def _opened(store: ObjectStore, entry: Entry, model: Output, previous: Reference | None) -> Promotion:
    compared = open_reference(store, entry.compared_with) if entry.compared_with else None
    return Promotion(
        model=model,
        evaluation=open_reference(store, entry.evaluation),
        verdict=open_reference(store, entry.verdict),
        previous=previous,
        compared_with=compared,
    )


def _check_verdict(promotion: Promotion, entry: Entry) -> None:
    """Refuse an entry whose verdict is about something else: whoever may hold need not be who may approve.

    Raises:
        DataError: it does not promote this model over that champion.
    """
    verdict = read_json(promotion.verdict, "verdict.json")
    before = entry.previous.content_digest if entry.previous else None
    about = promotion.model.content_digest, before
    said = verdict.get("challenger"), verdict.get("champion") or verdict.get("replaces")
    if not verdict.get("promote") or said != about:
        raise DataError(
            f"{promotion.verdict} does not promote {promotion.model} over {named(entry.previous)}: the entry "
            "in records/held.json was changed by hand, and nothing was moved. Run yanmo promote --hold for it"
        )


def _stale(store: ObjectStore, channel: str, entry: Entry) -> str:
    now = read_pointer(store, channel, CHAMPION)
    return f"{stale(entry, now)}; nothing was moved. {_compare_again(store, channel, entry)}"


def _compare_again(store: ObjectStore, channel: str, entry: Entry) -> str:
    return f"Compare it again: {compare_again(entry, place_of(store, channel))}; then approve it"


def _signed(store: ObjectStore, channel: str, entry: Entry, signature: Signature) -> Entry:
    """The entry with a signature: this one, or that of an approval that was killed."""
    if entry.state == "signed":
        log.warning("going on with the approval by %s, %s", entry.who, shown_time(entry.decided_at))
        return entry
    to = {"state": "signed", "who": signature.who, "why": signature.why, "decided_at": utc_now()}
    done = move(store, channel, entry, **to)
    if done is not None:
        return done
    now = read_held(store, channel).of(entry.model.content_digest)
    if now is not None and now.state in ("signed", "approved"):
        return now  # another person approved it at the same moment
    state = f"{now.state} by {now.who}: {now.why}" if now else "gone"
    raise DataError(
        f"{named(entry.model)} was changed meanwhile: it is {state}; nothing was moved. See yanmo promote "
        "history and choose again"
    )


def _unsign(store: ObjectStore, channel: str, signed: Entry) -> None:
    move(store, channel, signed, state="waiting", who="", why="", decided_at="")


def _close(store: ObjectStore, channel: str, entry: Entry) -> None:
    """Note that the model is champion; what its page shows next night is known from then on."""
    if entry.writing is not None:
        name_beside_champion(store, channel, CHAMPION_WRITING, entry.model, entry.writing)
    if entry.state == "signed":
        move(store, channel, entry, state="approved")


def reject(store: ObjectStore, channel: str, entry: Entry, signature: Signature) -> Entry:
    """Let a model wait no longer, and never be held again; returns the entry as it is then.

    Raises:
        DataError: it is champion, or its approval has begun.
    """
    champion = read_pointer(store, channel, CHAMPION)
    name, place = named(entry.model), place_of(store, channel)
    if champion is not None and champion.content_digest == entry.model.content_digest:
        raise DataError(
            f"{name} is the champion of channel {channel!r} and is served; take it down: yanmo promote "
            f"rollback {place} --why ..."
        )
    if entry.state == "rejected":
        return entry
    if entry.state == "signed":
        raise DataError(
            f"{name} was approved by {entry.who}, {shown_time(entry.decided_at)}, and is being promoted; "
            f"finish that (yanmo promote approve {name} {place} --why ...), then take it down by rollback"
        )
    to = {"state": "rejected", "who": signature.who, "why": signature.why, "decided_at": utc_now()}
    done = move(store, channel, entry, **to)
    if done is None:
        raise DataError(f"{name} was changed meanwhile; nothing was written. Look at yanmo promote history")
    return done
