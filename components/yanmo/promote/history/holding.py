"""A winner that waits for a person: how promote enters it, and how it tells so."""

from __future__ import annotations

import logging
import time

from yanmo.promote.gate.verdict import Decision, Words
from yanmo.promote.history.champion import Promotion, named
from yanmo.promote.history.champion_records import shown_time
from yanmo.store.channel.held import Entry, days_from, move, put, read_held
from yanmo.store.manifest import Reference
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.store.schema import utc_now

log = logging.getLogger(__name__)


def hold(
    store: ObjectStore,
    channel: str,
    promotion: Promotion,
    *,
    sentence: str,
    writing: Output | None,
    run_id: str,
    days: float,
) -> Entry:
    """Let a winner wait; the entry as it is then.

    The same comparison keeps its place and its time. A new one, with the champion of today, takes the place
    of an older one of the same model. A model that a person rejected stays rejected.
    """
    now = utc_now()
    entry = Entry(
        model=promotion.model.reference,
        evaluation=promotion.evaluation.reference,
        verdict=promotion.verdict.reference,
        previous=promotion.previous,
        compared_with=promotion.compared_with.reference if promotion.compared_with else None,
        writing=writing.reference if writing else None,
        sentence=sentence,
        held_at=now,
        expires_at=days_from(now, days),
        run_id=run_id,
    )

    def replaces(older: Entry | None) -> bool:
        if older is None or older.state == "withdrawn":
            return True
        if older.state in ("rejected", "signed"):
            return False
        same = older.verdict.content_digest == entry.verdict.content_digest
        is_waiting = older.state == "waiting" and not older.is_over(time.time())
        return not (is_waiting and same and older.previous == entry.previous)

    put(store, channel, entry, replaces)
    found = read_held(store, channel).of(promotion.model.content_digest)
    assert found is not None
    return found


def withdraw(store: ObjectStore, channel: str, model: Output, why: str) -> bool:
    """Let a model wait no longer that a newer verdict does not promote; whether it waited."""
    entry = read_held(store, channel).of(model.content_digest)
    if entry is not None and entry.state == "waiting":
        done = move(store, channel, entry, state="withdrawn", why=why, decided_at=utc_now())
        if done:
            log.warning("%s waits no longer to be approved: %s", model, why)
        return done is not None
    return False


def decision_of(entry: Entry, champion: Reference | None, now: float, place: str) -> Decision:
    """How a held model stands, and what a person does about it.

    Args:
        champion: what the channel's champion pointer names.
        now: Unix seconds.
        place: flags that name store and channel.
    """
    name, when = named(entry.model), shown_time(entry.decided_at)
    standing = entry.standing(champion, now)
    match standing:
        case "approved":
            return Decision(
                "approved",
                Words(
                    f"Approved by {entry.who}, {when}: {entry.why}. It became champion.",
                    f"已由 {entry.who} 于 {when} 批准：{entry.why}。已成为冠军。",
                ),
            )
        case "rejected":
            return Decision(
                "rejected",
                Words(
                    f"Rejected by {entry.who}, {when}: {entry.why}. The champion stays.",
                    f"已由 {entry.who} 于 {when} 否决：{entry.why}。现任冠军不变。",
                ),
            )
        case "withdrawn":
            return Decision(
                "withdrawn",
                Words(
                    f"Waits no longer for approval since {when}: {entry.why}",
                    f"自 {when} 起不再等待批准：{entry.why}",
                ),
            )
        case "signed":
            command = f"yanmo promote approve {name} {place} --why ..."
            return Decision(
                "held",
                Words(
                    f"Approved by {entry.who}, and not champion yet: {command} goes on.",
                    f"已由 {entry.who} 批准，但尚未成为冠军：{command} 可继续完成。",
                ),
            )
        case "stale" | "expired":
            about = stale(entry, champion) if standing == "stale" else expired(entry)
            again = compare_again(entry, place)
            return Decision(
                standing,
                Words(
                    f"It cannot be approved: {about.en}. To compare it again: {again}; then approve it.",
                    f"无法批准：{about.zh}。重新比较：{again}；然后再批准。",
                ),
            )
    until = shown_time(entry.expires_at)
    command = f"yanmo promote approve {name} {place} --why ..."
    return Decision(
        "held",
        Words(
            f"Held for approval until {until}; the champion stays until then: {command}, or reject in the "
            "place of approve.",
            f"等待人工批准，至 {until} 为止；在此之前冠军不变：{command}，或将 approve 换成 reject。",
        ),
    )


def stale(entry: Entry, champion: Reference | None) -> Words:
    """That the comparison in which a model won was with another champion."""
    name, before, now = named(entry.model), named(entry.previous), named(champion)
    if entry.previous is None:
        return Words(
            f"{name} was to be the first champion, but the champion is {now} now",
            f"{name} 当时将是首任冠军，而现任冠军是 {now}",
        )
    return Words(
        f"{name} was compared with {before}, but the champion is {now} now",
        f"{name} 当时与 {before} 比较，而现任冠军是 {now}",
    )


def expired(entry: Entry) -> Words:
    """That nobody decided in time."""
    name, until = named(entry.model), shown_time(entry.expires_at)
    return Words(
        f"{name} waited until {until}, and its comparison is too old now",
        f"{name} 等待至 {until} 为止，其比较已过时",
    )


def compare_again(entry: Entry, place: str) -> str:
    """The command that compares a held model with the champion of now."""
    evaluation = f"{entry.evaluation.stage}/{entry.evaluation.key[:12]}"
    return f"yanmo promote --hold --challenger {evaluation} {place}"


def place_of(store: ObjectStore, channel: str) -> str:
    """The flags that name a store and a channel."""
    return f"--store {store.uri} --channel {channel}"


def waiting_names(entries: list[Entry], champion: Reference | None, now: float) -> str:
    """Entries as a person tells them apart."""
    return ", ".join(f"{named(e.model)} ({e.standing(champion, now)})" for e in entries)
