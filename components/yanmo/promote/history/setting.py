"""Move the champion pointer by hand: a model that was judged becomes champion because a person says so.

So a winner that `--hold` kept waiting is approved, and any other judged model may be served. It goes the way
of a promotion (champion.py), and its record says who and why.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from yanmo.common.errors import DataError, UsageError
from yanmo.common.words import Words, together
from yanmo.promote.gate.headline import conditions, headline
from yanmo.promote.history.champion import Promotion, champion_of, check_model, make_champion
from yanmo.store.champion_records import ChampionRecord, all_records, follow, named
from yanmo.store.objects import ObjectStore
from yanmo.store.output import SHORTEST_KEY, Output, find_by_digits, find_output, read_json
from yanmo.store.pointers import place_flags

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SetPlan:
    """What `set` would do."""

    channel: str
    promotion: Promotion
    sentence: str
    """What the verdict says, in English."""
    is_other: bool
    """Whether the verdict compares with another champion than that of now."""

    def __str__(self) -> str:
        model, now = self.promotion.model, self.promotion.previous
        about = f"{self.promotion.verdict} says of {model}: {self.sentence}"
        if self.is_other:
            about += f"\nIt was not compared with the champion of now, {named(now)}."
        return f"{about}\n{named(now)} is champion of channel {self.channel!r}; it will be {model}"


def plan_set(store: ObjectStore, channel: str, what: str) -> SetPlan:
    """Return what to do; nothing is moved, and the model's files are verified.

    Args:
        what: `train/KEY`, or `promote/KEY` of the verdict; the first digits of a key are enough, and a key by
            itself is a model's.

    Raises:
        UsageError, DataError: it is none, was never judged, or is damaged.
    """
    stage, _, digits = what.rpartition("/")
    if stage not in ("", "train", "promote") or len(digits) < SHORTEST_KEY:
        raise UsageError(f"{what[:100]!r}: expected train/KEY of a model that was judged, or promote/KEY")
    if stage == "promote":
        verdict = find_by_digits(store, "promote", digits)
    else:
        model = find_by_digits(store, "train", digits)
        verdict = model and _newest_verdict(store, model)
        if model and not verdict:
            place = place_flags(store, channel)
            raise DataError(
                f"{model} was never judged, so nobody knows what it is worth; run `yanmo evaluate --model "
                f"train/{model.manifest.key} {place}`, then `yanmo promote --hold {place}`, then this again"
            )
    if verdict is None:
        raise DataError(f"{what}: no such output in {store.uri}; see `yanmo store ls`")
    evaluation = verdict.input("challenger")
    model = evaluation.input("model") if evaluation else None
    if evaluation is None or model is None:
        raise DataError(f"{verdict}: does not say which model it judged; run `yanmo promote` again")
    check_model(model, "chosen model")
    (previous, last), judged = champion_of(store, channel), read_json(verdict, "verdict.json")
    sentence = Words(**judged["sentence"])
    if judged["promote"] and verdict.reference not in [r.verdict for r in all_records(store, channel)]:
        # its page said so too: "Promoted" is what the rules say, and no pointer followed them
        sentence = together(headline(judged, is_held=True), conditions(sentence))
    compared = judged.get("champion")
    return SetPlan(
        channel=channel,
        promotion=Promotion(
            model=model,
            evaluation=evaluation,
            verdict=verdict,
            previous=previous,
            last=last,
            compared_with=verdict.input("champion"),
        ),
        sentence=sentence.en,
        is_other=previous is not None and previous.content_digest not in (compared, model.content_digest),
    )


def set_champion(store: ObjectStore, plan: SetPlan, *, who: str, why: str) -> ChampionRecord:
    """Do it; where the model is champion already, the pointer is moved if it was left behind.

    Raises:
        ChampionChanged: the champion changed since the plan was made, or a person took the model down, which
            a rollback takes back; nothing was moved.
    """
    last, model = plan.promotion.last, plan.promotion.model
    if last is not None and last.model.content_digest == model.content_digest:
        follow(store, plan.channel)
        return last
    return make_champion(store, plan.channel, replace(plan.promotion, who=who, why=why))


def _newest_verdict(store: ObjectStore, model: Output) -> Output | None:
    """The newest verdict about a model; reads the manifest of every verdict of the store."""
    found: list[Output] = []
    for info in store.list("cas/promote"):
        _, stage, key, *rest = info.name.split("/")
        if rest != ["MANIFEST.json"]:
            continue
        try:
            verdict = find_output(store, stage, key)
            evaluation = verdict.input("challenger") if verdict else None
            judged = evaluation.input("model") if evaluation else None
        except DataError as error:
            log.warning("passed over: %s", error)
            continue
        if verdict and judged and judged.content_digest == model.content_digest:
            found.append(verdict)
    return max(found, key=lambda one: one.manifest.created_at, default=None)
