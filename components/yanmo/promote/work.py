"""The promote stage: whom to compare with, the verdict, and the crown."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.options import NONE, by_kind
from yanmo.common.records import GENRE_ALIASES
from yanmo.common.stage_run import Finish, StageRun
from yanmo.common.store.commit import Result
from yanmo.common.store.manifest import digest
from yanmo.common.store.output import Output, open_reference, read_json
from yanmo.common.store.pointers import move_pointer, read_pointer
from yanmo.promote.champion import (
    CHAMPION,
    CHAMPION_EVALUATION,
    CHAMPION_WRITING,
    Coronation,
    check_model,
    crown,
    named,
    read_champion,
    settle,
)
from yanmo.promote.chronicle import Record, all_records, last_record, record_name
from yanmo.promote.config import PromoteConfig
from yanmo.promote.evaluation import (
    Evaluation,
    evaluate_command,
    is_of,
    open_evaluation,
    paired_scores,
    with_writing,
)
from yanmo.promote.gate import Evidence, Rules, Verdict, first_champion, judge
from yanmo.promote.health import contamination_of, figures_of
from yanmo.promote.limits import parse_limits
from yanmo.promote.lineage import verdict_command

log = logging.getLogger(__name__)
_ASCII = {genre: alias for alias, genre in GENRE_ALIASES.items()}


def prepare(run: StageRun) -> dict[str, Any]:
    """Find out whom the challenger is compared with, and that both models are whole.

    A challenger that is champion already is compared with whom it was compared when it was crowned, so that
    the same verdict is found under the same key.

    Raises:
        DataError: a model is damaged, or the champion's evaluation is missing or of another model.
    """
    return _own_writing(run) | _compared(run)


def _own_writing(run: StageRun) -> dict[str, Any]:
    """Leave out figures of writing that belong to another evaluation: the channel's latest may."""
    writing, challenger = run.inputs["writing"], run.input("challenger")
    if writing is None or is_of(writing, challenger):
        return {}
    log.warning(
        "%s is not of %s and is not used: contamination and writing are not judged; run `yanmo evaluate` "
        "with --documents, or give --writing",
        writing,
        challenger,
    )
    run.inputs["writing"] = None
    return {"writing": None}


def _compared(run: StageRun) -> dict[str, Any]:
    challenger = open_evaluation(run.input("challenger"))
    check_model(challenger.model, "challenger")
    run.extra["previous"] = None
    last = last_record(run.store, run.options.channel)
    if run.options.dry_run:
        _check_dry_run(run)
        return _barred(run, last, challenger.model)
    found = read_champion(run.store, run.options.channel)
    if found is None:
        return _without_champion(run, last)
    reference, champion = found
    run.extra["previous"] = reference
    if champion.content_digest == challenger.model.content_digest:
        return _compare_as_crowned(run, last, challenger.output, champion)
    measured = _measured_champion(run, champion, challenger.summary["conditions"])
    return _compare_with(run, measured) | _barred(run, last, challenger.model)


def _check_dry_run(run: StageRun) -> None:
    """Any two evaluations may be compared, but a champion is not passed over unless that is asked for."""
    options = run.options
    if run.inputs["champion"] is None and options.champion != NONE and options.inputs == "latest":
        reigning = read_pointer(run.store, options.channel, CHAMPION)
        if reigning is not None:
            raise DataError(
                f"the champion {named(reigning)} has no evaluation to compare with; run `yanmo evaluate "
                f"--model train/{reigning.key} --documents none --pointer champion_evaluation`, or give "
                "--champion (an evaluation, or none)"
            )


def _without_champion(run: StageRun, last: Record | None) -> dict[str, Any]:
    """The first model of a channel. One whose history names a champion has lost the pointer to it."""
    channel = run.options.channel
    if last is not None:
        raise DataError(
            f"channel {channel!r} has no pointer {CHAMPION}, but its history names {named(last.model)}: the "
            "pointer is lost, and no model is crowned unseen. Bring it back: `yanmo promote rollback --why "
            f"'pointer lost' --store {run.store.uri} --channel {channel}`"
        )
    if run.inputs["champion"] is not None:
        log.warning("channel %r has no champion; --champion is not used", channel)
    return _compare_with(run, None)


def _compare_as_crowned(
    run: StageRun, record: Record | None, challenger: Output, champion: Output
) -> dict[str, Any]:
    """The challenger is champion: the comparison by which it was crowned, if it was measured as it is now."""
    if record is None or record.model.content_digest != champion.content_digest:
        return {}  # crowned by a run that was killed before its record: same inputs, same key
    if record.kind == "rollback" or record.evaluation.content_digest != challenger.content_digest:
        return _compare_with(run, challenger)
    before = record.compared_with
    return _compare_with(run, open_reference(run.store, before) if before else None)


def _compare_with(run: StageRun, champion: Output | None) -> dict[str, Any]:
    run.inputs["champion"] = champion
    return {"champion": champion}


def _barred(run: StageRun, record: Record | None, model: Output) -> dict[str, Any]:
    """A model that was taken down is judged under a key of its own, and the verdict says so."""
    bar = record.bar_on(model.content_digest) if record else None
    run.extra["rolled_back"] = str(bar) if bar else ""
    if bar is None or record is None:
        return {}
    where = record_name(run.options.channel, record.number)
    return {"rolled_back": {"content_digest": digest(asdict(bar)), "uri": where}}


def _measured_champion(run: StageRun, champion: Output, conditions: dict[str, str]) -> Output:
    """The champion's evaluation: the given one, or the channel's where another was crowned since."""
    given, channel = run.inputs["champion"], run.options.channel
    command = evaluate_command(champion, conditions)
    if given is None:
        raise DataError(f"the champion {champion} has no evaluation to compare with; run {command} first")
    measured = open_evaluation(given).model
    if measured.content_digest == champion.content_digest:
        return given
    reigned = {record.model.content_digest for record in all_records(run.store, channel)}
    pointer = read_pointer(run.store, channel, CHAMPION_EVALUATION)
    own = open_reference(run.store, pointer) if pointer and measured.content_digest in reigned else None
    if own is None or open_evaluation(own).model.content_digest != champion.content_digest:
        raise DataError(
            f"{given} measures {measured}, but the champion of channel {channel!r} is {champion}; run "
            f"{command} first"
        )
    log.warning(
        "%s measures %s; the champion of channel %r is %s, by %s", given, measured, channel, champion, own
    )
    return own


def work(run: StageRun) -> Result:
    """Judge, and write verdict, page and summary."""
    from yanmo.promote.page import render
    from yanmo.promote.report import make_report
    from yanmo.promote.summary import summary_text

    challenger = with_writing(open_evaluation(run.input("challenger")), run.inputs["writing"])
    champion = _opened_champion(run.inputs["champion"], run.inputs["champion_writing"])
    verdict = _judged(run, challenger, champion)
    baselines = run.inputs["baselines"]
    figures = read_json(baselines, "summary.json") if baselines else None
    report = make_report(
        verdict,
        challenger,
        champion,
        figures,
        channel=run.options.channel,
        options=by_kind(run.options, "semantic"),
        command=verdict_command(run),
    )
    run.attempt.write("verdict.json", _json(_verdict_record(verdict, challenger, champion)))
    run.attempt.write("report.json", _json(report), role="record")
    run.attempt.write("summary.txt", summary_text(report, run.options.seed), role="record")
    run.attempt.write("report.html", render(report), role="record")
    return Result(
        counts={"promote": str(verdict.promote).lower()}, metadata={"sentence": verdict.sentence.en}
    )


def _opened_champion(evaluation: Output | None, writing: Output | None) -> Evaluation | None:
    """The champion's evaluation, with how it writes where that was measured; nothing is decided by it."""
    if evaluation is None:
        return None
    champion = open_evaluation(evaluation)
    try:
        return with_writing(champion, writing if writing and is_of(writing, evaluation) else None)
    except DataError as error:
        log.warning("how the champion writes is not shown: %s", error)
        return champion


def _judged(run: StageRun, challenger: Evaluation, champion: Evaluation | None) -> Verdict:
    rules = rules_of(run.options)
    same = champion is not None and challenger.model.content_digest == champion.model.content_digest
    evidence = Evidence(
        same_model=same,
        contamination=contamination_of(challenger, run.options.max_contamination),
        figures=figures_of(challenger),
        rolled_back=run.extra.get("rolled_back", ""),
    )
    if champion is None:
        return first_champion(challenger.mean, rules, evidence)
    return judge(paired_scores(challenger, champion), rules, evidence)


def rules_of(options: PromoteConfig) -> Rules:
    """The numbers in the rules, from the stage's options."""
    return Rules(
        min_gain=options.min_gain,
        max_genre_loss=options.max_genre_loss,
        level=options.level,
        draws=options.draws,
        seed=options.seed,
        max_contamination=options.max_contamination,
        limits=parse_limits(options.limits),
    )


def _verdict_record(verdict: Verdict, challenger: Evaluation, champion: Evaluation | None) -> dict[str, Any]:
    return {
        "schema": "yanmo.verdict/2",
        "promote": verdict.promote,
        **asdict(verdict),
        "conditions": challenger.summary["conditions"],
        "challenger": challenger.model.content_digest,
        "champion": champion.model.content_digest if champion else None,
    }


def finish(run: StageRun, output: Output) -> Finish:
    """Move the crown if the verdict says so; the same for a verdict made now or before."""
    verdict = read_json(output, "verdict.json")
    promoted = _crowned(run, output, verdict)
    report = read_json(output, "report.json")
    return Finish(
        parameters={"promoted": str(promoted).lower()},
        artifacts={"report": output.path("report.html")},
        metadata={"metrics": metrics(report, promoted)},
    )


def _crowned(run: StageRun, output: Output, verdict: dict[str, Any]) -> bool:
    """Whether the challenger is champion when this returns."""
    if run.options.dry_run:
        log.info("dry run, nothing moved. %s", verdict["sentence"]["en"])
        return False
    store, channel, evaluation = run.store, run.options.channel, run.input("challenger")
    coronation = Coronation(
        model=open_evaluation(evaluation).model,
        evaluation=evaluation,
        verdict=output,
        previous=run.extra["previous"],
        compared_with=run.inputs["champion"],
    )
    now = read_pointer(store, channel, CHAMPION)
    if now is not None and now.content_digest == coronation.model.content_digest:
        record = settle(store, channel, coronation)
        _keep_writing(run)
        log.info("%s is already champion of channel %r since %s", coronation.model, channel, record.since)
        return True
    log.info("%s", verdict["sentence"]["en"])
    if verdict["promote"]:
        record = crown(store, channel, coronation)
        log.info("%s is champion of channel %r (number %d)", coronation.model, channel, record.number)
        _keep_writing(run)
    return bool(verdict["promote"])


def _keep_writing(run: StageRun) -> None:
    """Let the next page show how this champion writes."""
    writing = run.inputs["writing"]
    if writing is not None:
        move_pointer(run.store, run.options.channel, CHAMPION_WRITING, writing.reference)


def metrics(report: dict[str, Any], promoted: bool) -> dict[str, float]:
    """The report's figures for KFP's UI, under ASCII names; what was not measured is left out."""
    gain, total = report["verdict"]["gain"] or {}, report["cost"]["total"]
    found = {
        "gain_bits": gain.get("bits"),
        "gain_percent": round(100 * gain["share"], 3) if gain else None,
        "gain_lowest_bits": gain["interval"][0] if gain and gain["interval"] else None,
        "wall_seconds": total["seconds"],
        "cpu_seconds": total["cpu_seconds"],
        "gpu_hours": total["gpu_hours"],
        "energy_kwh": total["kwh"],
        **report["guards"],
    }
    for column in report["bits_per_character"]["columns"]:
        if column["id"].isascii():
            found[f"bpc_{column['id']}"] = column["mean"]["value"]
    for i, (genre, cell) in enumerate(report["bits_per_character"]["columns"][0]["rows"].items()):
        found[f"bpc_challenger_{_ASCII.get(genre, f'genre_{i}')}"] = cell["value"]
    return {"promoted": float(promoted)} | {n: float(v) for n, v in found.items() if v is not None}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
