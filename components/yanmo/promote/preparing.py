"""What a verdict depends on in addition to its inputs: the champion, nights, noise, searched text."""

from __future__ import annotations

import logging
from dataclasses import asdict

from yanmo.common.errors import DataError, UsageError
from yanmo.formats.seed_noise import PART
from yanmo.options.fields import NONE
from yanmo.promote.gate.base import BASE, is_base_of
from yanmo.promote.gate.evaluation import (
    CONTAMINATION,
    coverage,
    evaluate_command,
    is_of,
    open_evaluation,
)
from yanmo.promote.gate.nights import nights_before
from yanmo.promote.hand_over import Handed, PromoteRun
from yanmo.promote.history.champion import CHAMPION, CHAMPION_EVALUATION, check_model, named, read_champion
from yanmo.promote.history.champion_records import (
    ChampionRecord,
    all_records,
    last_record,
    record_name,
)
from yanmo.stage.stage_run import KeyInput, Prepared
from yanmo.store.manifest import digest
from yanmo.store.output import Output, open_reference
from yanmo.store.pointers import read_pointer

log = logging.getLogger(__name__)


def prepare(run: PromoteRun) -> Prepared[Handed]:
    """Find the champion to compare the challenger with, and check that both models are whole.

    A challenger that is champion already is compared with the champion before it, as it was when it was
    promoted, so that the same verdict is found under the same key.

    Raises:
        DataError: a model is damaged, or the champion's evaluation is missing or of another model.
    """
    made = Handed()
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
    last = last_record(store, channel)
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
    last = last_record(run.store, run.options.channel)
    if run.options.dry_run:
        _check_dry_run(run, challenger.summary["conditions"])
        return _rolled_back(run, made, last, challenger.model)
    found = read_champion(run.store, run.options.channel)
    if found is None:
        return _without_champion(run, last)
    reference, champion = found
    made.previous = reference
    if champion.content_digest == challenger.model.content_digest:
        return _compare_as_promoted(run, last, challenger.output, champion)
    measured = _measured_champion(run, champion, challenger.summary["conditions"])
    return _compare_with(run, measured) | _rolled_back(run, made, last, challenger.model)


def _check_dry_run(run: PromoteRun, conditions: dict[str, str]) -> None:
    """Any two evaluations may be compared, but a champion is ignored only where the command says so."""
    options = run.options
    if run.inputs["champion"] is None and "champion" not in run.left_out:
        current = read_pointer(run.store, options.channel, CHAMPION)
        if current is not None:
            raise DataError(
                f"the champion {named(current)} has no evaluation to compare with; run "
                f"{evaluate_command(current.key, conditions)}, or give --champion (an evaluation, or none)"
            )


def _without_champion(run: PromoteRun, last: ChampionRecord | None) -> dict[str, KeyInput]:
    """The first model of a channel. One whose history names a champion has lost the pointer to it."""
    channel = run.options.channel
    if last is not None:
        raise DataError(
            f"channel {channel!r} has no pointer {CHAMPION}, but its history names {named(last.model)}: the "
            "pointer is lost, and no model is promoted unseen. Bring it back: `yanmo promote rollback --why "
            f"'pointer lost' --store {run.store.uri} --channel {channel}`"
        )
    if run.inputs["champion"] is not None:
        log.warning("channel %r has no champion; --champion is not used", channel)
    return _compare_with(run, None)


def _compare_as_promoted(
    run: PromoteRun, record: ChampionRecord | None, challenger: Output, champion: Output
) -> dict[str, KeyInput]:
    """The challenger is champion: the comparison that promoted it, if it was measured as it is now."""
    if record is None or record.model.content_digest != champion.content_digest:
        return {}  # promoted by a run that was killed before its record: same inputs, same key
    if record.kind == "rollback" or record.evaluation.content_digest != challenger.content_digest:
        return _compare_with(run, challenger)
    before = record.compared_with
    return _compare_with(run, open_reference(run.store, before) if before else None)


def _compare_with(run: PromoteRun, champion: Output | None) -> dict[str, KeyInput]:
    run.inputs["champion"] = champion
    return {"champion": champion}


def _rolled_back(
    run: PromoteRun, made: Handed, record: ChampionRecord | None, model: Output
) -> dict[str, KeyInput]:
    """A model that was rolled back is judged under a key of its own, and the verdict says so."""
    taken_down = record.rollback_of(model.content_digest) if record else None
    made.rolled_back = str(taken_down) if taken_down else ""
    if taken_down is None or record is None:
        return {}
    where = record_name(run.options.channel, record.number)
    return {"rolled_back": {"content_digest": digest(asdict(taken_down)), "uri": where}}


def _measured_champion(run: PromoteRun, champion: Output, conditions: dict[str, str]) -> Output:
    """The champion's evaluation: the given one, or the channel's where another was promoted since."""
    given, channel = run.inputs["champion"], run.options.channel
    command = evaluate_command(champion.manifest.key, conditions)
    if given is None and run.options.champion == NONE:
        raise UsageError(
            f"--champion none: expected a channel without a champion, but {channel!r} has {champion} "
            "(another promotion may have come first); leave --champion out to compare with it"
        )
    if given is None:
        raise DataError(f"the champion {champion} has no evaluation to compare with; run {command} first")
    measured = open_evaluation(given).model
    if measured.content_digest == champion.content_digest:
        return given
    champions = {record.model.content_digest for record in all_records(run.store, channel)}
    pointer = read_pointer(run.store, channel, CHAMPION_EVALUATION)
    own = open_reference(run.store, pointer) if pointer and measured.content_digest in champions else None
    if own is None or open_evaluation(own).model.content_digest != champion.content_digest:
        raise DataError(
            f"{given} measures {measured}, but the champion of channel {channel!r} is {champion}; run "
            f"{command} first"
        )
    log.warning(
        "%s measures %s; the champion of channel %r is %s, by %s", given, measured, channel, champion, own
    )
    return own
