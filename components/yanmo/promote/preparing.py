"""What a verdict depends on in addition to its inputs: the champion, nights, noise, searched text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from yanmo.common.errors import DataError, UsageError
from yanmo.formats.seed_noise import PART
from yanmo.options.fields import NONE
from yanmo.promote.config import PromoteConfig
from yanmo.promote.gate.base import BASE, is_base_of
from yanmo.promote.gate.evaluation import (
    CONTAMINATION,
    coverage,
    evaluate_command,
    is_of,
    open_evaluation,
)
from yanmo.promote.gate.nights import Night, nights_before
from yanmo.promote.history.champion import champion_of, check_model, open_champion
from yanmo.stage.stage_run import KeyInput, Prepared, StageRun
from yanmo.store.champion_records import ChampionRecord, all_records, record_name
from yanmo.store.manifest import Reference, digest
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import place_flags, read_pointer

log = logging.getLogger(__name__)


@dataclass
class Handed:
    """What `prepare` hands to the verdict and to the promotion; filled in while the key is found."""

    champion: Reference | None
    """The channel's champion when the comparison began."""
    last: ChampionRecord | None
    """The end of the history then."""
    nights: Sequence[Night] = ()
    """The gains of the nights before."""
    rolled_back: str = ""
    """Who took this model down, and why; empty where nobody did."""


PromoteRun = StageRun[PromoteConfig, Handed]


def prepare(run: PromoteRun) -> Prepared[Handed]:
    """Find the champion to compare the challenger with, and check that both models are whole.

    A challenger that is champion already is compared with the champion before it, as it was when it was
    promoted, so that the same verdict is found under the same key.

    Raises:
        DataError: a model is damaged, or the champion's evaluation is missing or of another model.
    """
    made = Handed(*champion_of(run.store, run.options.channel))
    inputs = (
        _own_writing(run)
        | _own_base(run)
        | _compared(run, made)
        | _noise(run)
        | _nights(run, made)
        | _searched(run)
    )
    return Prepared(made, inputs)


def _nights(run: PromoteRun, made: Handed) -> dict[str, KeyInput]:
    """The gains of earlier nights count together with tonight's, so they are part of the key."""
    if run.inputs["champion"] is None:
        return {}
    store, channel = run.store, run.options.channel
    challenger, champion = (open_evaluation(run.input(name)) for name in ("challenger", "champion"))
    last = made.last
    is_champion = last is not None and last.model.content_digest == challenger.model.content_digest
    verdict = last.verdict if last and is_champion else read_pointer(store, channel, run.stage.name)
    nights = nights_before(store, verdict, challenger, champion)
    made.nights = nights
    if not nights or verdict is None:
        return {}
    return {"nights": {"content_digest": digest([asdict(n) for n in nights]), "uri": verdict.manifest_uri}}


def _noise(run: PromoteRun) -> dict[str, KeyInput]:
    """The spread that the challenger's seed makes decides as well, so its measurement is part of the key."""
    model = open_evaluation(run.input("challenger")).model
    return {PART: model.part(PART)} if PART in model.manifest.references else {}


def _searched(run: PromoteRun) -> dict[str, KeyInput]:
    """What was found in the training text, and how much of that text the store shows now, is part of the key.

    Neither is in the evaluation's digest: the part may be made later (`evaluate --force`), and a text that
    was lost when the last verdict was made may come back.
    """
    evaluation = run.input("challenger")
    model, found = open_evaluation(evaluation).model, dict[str, Output]()
    if CONTAMINATION in evaluation.manifest.references:
        found[CONTAMINATION] = evaluation.part(CONTAMINATION)
    if run.inputs["writing"] is not None:
        found["writing"] = run.input("writing")
    if not found:
        return {}
    searched = {name: [part.content_digest, coverage(part, model)[0]] for name, part in found.items()}
    where = ", ".join(f"{part.manifest.stage}/{part.manifest.key}" for part in found.values())
    return {"searched": {"content_digest": digest(searched), "uri": where}}


def _own_writing(run: PromoteRun) -> dict[str, KeyInput]:
    """Leave out a part `writing` that belongs to another evaluation, as the channel's latest may."""
    writing, challenger = run.inputs["writing"], run.input("challenger")
    if writing is None or is_of(writing, challenger):
        return {}
    log.warning(
        "%s is not of %s and is not used: writing is not judged; run `yanmo evaluate` "
        "with --documents, or give --writing",
        writing,
        challenger,
    )
    run.inputs["writing"] = None
    return {"writing": None}


def _own_base(run: PromoteRun) -> dict[str, KeyInput]:
    """Leave out an evaluation of another model than the challenger was tuned from, as the latest may be."""
    base = run.inputs[BASE]
    if base is None or is_base_of(base, run.input("challenger")):
        return {}
    if run.options.base:
        log.warning("%s is not of the model that the challenger was tuned from, and is not used", base)
    run.inputs[BASE] = None
    return {BASE: None}


def _compared(run: PromoteRun, made: Handed) -> dict[str, KeyInput]:
    challenger = open_evaluation(run.input("challenger"))
    check_model(challenger.model, "challenger")
    if run.options.dry_run and "champion" in run.given:  # any two evaluations may be compared
        return _rolled_back(run, made, challenger.model)
    if made.champion is None:
        if run.inputs["champion"] is not None:
            log.warning("channel %r has no champion; --champion is not used", run.options.channel)
        return _compare_with(run, None)
    champion = open_champion(run.store, run.options.channel, made.champion)
    if champion.content_digest == challenger.model.content_digest:
        return _compare_as_promoted(run, made.last, challenger.output)
    measured = _measured_champion(run, made, champion, challenger.summary["conditions"])
    return _compare_with(run, measured) | _rolled_back(run, made, challenger.model)


def _compare_as_promoted(
    run: PromoteRun, record: ChampionRecord | None, challenger: Output
) -> dict[str, KeyInput]:
    """The challenger is champion: the comparison that promoted it, if it was measured as it is now."""
    if record is None:
        return {}
    if record.kind == "rollback" or record.evaluation.content_digest != challenger.content_digest:
        return _compare_with(run, challenger)
    before = record.compared_with
    return _compare_with(run, open_reference(run.store, before) if before else None)


def _compare_with(run: PromoteRun, champion: Output | None) -> dict[str, KeyInput]:
    run.inputs["champion"] = champion
    return {"champion": champion}


def _rolled_back(run: PromoteRun, made: Handed, model: Output) -> dict[str, KeyInput]:
    """A model that was rolled back is judged under a key of its own, and the verdict says so."""
    taken_down = made.last.rollback_of(model.content_digest) if made.last else None
    if taken_down is None or made.last is None:
        return {}
    made.rolled_back = str(taken_down)
    where = record_name(run.options.channel, made.last.number)
    return {"rolled_back": {"content_digest": digest(asdict(taken_down)), "uri": where}}


def _measured_champion(run: PromoteRun, made: Handed, champion: Output, conditions: dict[str, str]) -> Output:
    """The champion's evaluation: the given one; else the one by which it was promoted."""
    given, channel = run.inputs["champion"], run.options.channel
    command = evaluate_command(champion.manifest.key, conditions, place_flags(run.store, channel))
    if given is None and run.options.champion == NONE:
        raise UsageError(
            f"--champion none: expected a channel without a champion, but {channel!r} has {champion} "
            "(another promotion may have come first); leave --champion out to compare with it"
        )
    if given is not None:
        measured = open_evaluation(given).model
        if measured.content_digest == champion.content_digest:
            return given
        records = all_records(run.store, channel)  # the first one's `previous` came by `yanmo store cp`
        champions = {one.content_digest for r in records for one in (r.model, r.previous) if one}
        if measured.content_digest not in champions:
            raise DataError(
                f"{given} measures {measured}, but the champion of channel {channel!r} is {champion}; run "
                f"{command} first"
            )
    try:
        own = open_reference(run.store, made.last.evaluation) if made.last else None
    except DataError as error:
        log.warning("the evaluation by which %s was promoted is lost: %s", champion, error)
        own = None
    if own is None:
        raise DataError(f"the champion {champion} has no evaluation to compare with; run {command} first")
    if given is not None:
        log.info("%s measures a former champion; compared with %s, by %s", given, champion, own)
    return own
