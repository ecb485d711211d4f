"""The promote stage: the verdict, its page, and the pointer to the champion."""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from yanmo.common.errors import EnvironmentFault
from yanmo.common.words import Words, together
from yanmo.nights.record import Verdict as NightVerdict
from yanmo.options.fields import by_kind
from yanmo.promote.config import PromoteConfig
from yanmo.promote.gate.base import BASE, with_base
from yanmo.promote.gate.confirmation import confirmed
from yanmo.promote.gate.evaluation import (
    Evaluation,
    open_evaluation,
    paired_scores,
    with_contamination,
    with_writing,
)
from yanmo.promote.gate.guards import contamination_of, guard_metrics
from yanmo.promote.gate.headline import conditions, headline
from yanmo.promote.gate.limits import parse_limits
from yanmo.promote.gate.nights import recipe_of, with_tonight
from yanmo.promote.gate.noise import goes_on, noise_of
from yanmo.promote.gate.rules import ABOUT_ONE, first_champion, judge
from yanmo.promote.gate.verdict import (
    ASSUMED_NOISE,
    LEAST_NOISE,
    LEVEL,
    VERDICT_SCHEMA,
    Evidence,
    Rules,
    Verdict,
)
from yanmo.promote.history.champion import Promotion, champion_of, make_champion
from yanmo.promote.preparing import PromoteRun
from yanmo.promote.run_metrics import run_metrics, show_champion_since, show_metrics
from yanmo.stage.stage_run import Finish
from yanmo.store.champion_records import CHAMPION, follow, named
from yanmo.store.commit import Result
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output, PausedOutput, read_json
from yanmo.store.pointers import place_flags, read_pointer
from yanmo.store.runs.unfinished import change_unfinished

log = logging.getLogger(__name__)


def work(run: PromoteRun) -> Result:
    """Judge, and write verdict, page and summary."""
    from yanmo.promote.page.rendering import render
    from yanmo.promote.page.report import make_report
    from yanmo.promote.page.summary import summary_text

    challenger = with_contamination(
        with_writing(open_evaluation(run.input("challenger")), run.inputs["writing"])
    )
    champion = open_evaluation(found) if (found := run.inputs["champion"]) else None
    base = open_evaluation(given) if (given := run.inputs[BASE]) else None
    challenger = with_base(challenger, base, run.options.draws, run.options.seed)
    verdict = _judged(run, challenger, champion)
    baselines = run.inputs["baselines"]
    baseline_results = read_json(baselines, "summary.json") if baselines else None
    report = make_report(
        verdict,
        challenger,
        champion,
        baseline_results,
        base=base,
        channel=run.options.channel,
        options=by_kind(run.options, "semantic"),
    )
    record = _verdict_record(run, verdict, challenger, champion)
    # Here, before the pointer moves, for metrics.prom; `finish` shows what became of it.
    hold, dry_run = run.options.hold, run.options.dry_run
    promoted, is_held = verdict.promote and not (hold or dry_run), verdict.promote and hold and not dry_run
    show_metrics(run.telemetry, record, report, promoted=promoted, is_held=is_held)
    run.attempt.write_json("verdict.json", record)
    run.attempt.write_json("report.json", report, role="record")
    run.attempt.write("summary.txt", summary_text(report, run.options.seed), role="record")
    run.attempt.write("report.html", render(report), role="record")
    return Result(
        counts={"promote": str(verdict.promote).lower()}, metadata={"sentence": verdict.sentence.en}
    )


def _judged(run: PromoteRun, challenger: Evaluation, champion: Evaluation | None) -> Verdict:
    rules = rules_of(run.options)
    same = champion is not None and challenger.model.content_digest == champion.model.content_digest
    evidence = Evidence(
        same_model=same,
        contamination=contamination_of(challenger, run.options.max_contamination),
        guard_metrics=guard_metrics(challenger),
        rolled_back=run.prepared.rolled_back,
        noise=noise_of(challenger.model, champion.model if champion else None),
        from_champion=goes_on(challenger.model, champion.model if champion else None),
        before=tuple(night.share for night in run.prepared.nights),
    )
    if champion is None:
        return first_champion(challenger.mean, rules, evidence)
    place = place_flags(run.store, run.options.channel)
    verdict = judge(paired_scores(challenger, champion, place), rules, evidence)
    return confirmed(verdict, challenger, champion, rules, run.options.without_confirmation)


def rules_of(options: PromoteConfig) -> Rules:
    """The numbers in the rules, from the stage's options."""
    return Rules(
        min_gain=options.min_gain,
        max_genre_loss=options.max_genre_loss,
        level=LEVEL,
        draws=options.draws,
        seed=options.seed,
        max_contamination=options.max_contamination,
        month_error=options.month_error,
        assumed_noise=ASSUMED_NOISE,
        least_noise=LEAST_NOISE,
        limits=parse_limits(options.limits),
        must_measure=not options.accept_unmeasured,
    )


def _verdict_record(
    run: PromoteRun, verdict: Verdict, challenger: Evaluation, champion: Evaluation | None
) -> dict[str, Any]:
    is_fit = all(check.passed is not False for check in verdict.checks if check.name in ABOUT_ONE)
    nights = with_tonight(run.prepared.nights, challenger, verdict.gain, is_fit)
    return {
        "schema": VERDICT_SCHEMA,
        "promote": verdict.promote,
        **asdict(verdict),
        "conditions": challenger.summary["conditions"],
        "challenger": challenger.model.content_digest,
        "champion": champion.model.content_digest if champion else None,
        "recipe": recipe_of(challenger.model),
        "nights": [asdict(night) for night in nights],
    }


def finish(run: PromoteRun, output: Output) -> Finish:
    """Move the champion pointer if the verdict says so; the same for a verdict made now or before."""
    from yanmo.promote.page.run_notes import judged_before, run_note, waits, with_words

    verdict = read_json(output, "verdict.json")
    became = _became(run, output, verdict)
    promoted, is_held = became in ("champion", "champion already"), became == "held"
    report = read_json(output, "report.json")
    show_metrics(run.telemetry, verdict, report, promoted=promoted, is_held=is_held)
    show_champion_since(run)
    # The record of a verdict that was found says what became of it then, not what becomes of it now.
    run.telemetry.recorded = None
    model = open_evaluation(run.input("challenger")).model
    _no_longer_unfinished(run, model)
    kept = output.path("report.html")
    page: str | Path = kept
    held = waits(run.store, run.options.channel, model) if is_held else None
    about = run_note(run.store, run.options.channel, run.options.run_id, model)
    is_old = became != "champion" and output.manifest.run_id not in ("", run.options.run_id)
    if is_old and about is None and run.options.run_id:
        about = judged_before(output.manifest.created_at)
    said = _said(verdict, held, about, is_old)
    if held or about:
        text = kept.read_text(encoding="utf-8")
        first = headline(verdict, is_held) if is_held else None
        page = with_words(text, together(first, held, about), is_old=is_old, is_held=is_held)
    dry = "dry run, nothing moved. " if run.options.dry_run else ""
    log.log(logging.WARNING if is_held else logging.INFO, "%s%s", dry, said.en)
    return Finish(
        parameters={"promoted": str(promoted).lower(), "result": said.en},
        artifacts={
            "report": page,
            "verdict_line": said.en + "\n",
            **_champion(run.store, run.options.channel),
        },
        metadata={"metrics": run_metrics(report, promoted)},
        night=_night(run, output, report, said, is_held, is_old),
    )


def _said(verdict: dict[str, Any], held: Words | None, about: Words | None, is_old: bool) -> Words:
    """The result line: the verdict in one sentence first, where this run gave it; then what it rests on."""
    follow = conditions(Words(**verdict["sentence"]))
    won = headline(verdict, held is not None)
    first = (about, won, held) if is_old else (won, held, about)
    return together(*first, None if conditions(won) == follow else follow)


def _night(
    run: PromoteRun, output: Output, report: dict[str, Any], said: Words, is_held: bool, is_old: bool
) -> NightVerdict:
    """Return what the channel's index of nights says of this verdict.

    Args:
        said: the result line.
        is_held: whether the model won and waits for a person.
        is_old: whether an earlier run gave the verdict.
    """
    from yanmo.promote.page.summary import chosen_verses

    page = f"cas/promote/{output.manifest.key}/{output.manifest.attempt}/report.html"
    found = NightVerdict.of(report, chosen_verses(report["samples"], run.options.seed), page)
    state = "held" if is_held else "nothing new" if is_old else found.state
    return replace(found, state=state, sentence=said)


def _no_longer_unfinished(run: PromoteRun, model: Output) -> None:
    """The model was judged: the channel's next run need not finish it. A person's dry run changes nothing."""
    if run.options.run_id or not run.options.dry_run:
        change_unfinished(run.store, run.options.channel, lambda record: record.without(model.manifest.key))


def show_pause(options: PromoteConfig, store: ObjectStore, paused: PausedOutput) -> Finish:
    """Return what a run shows that has no model to judge yet: the champion stays."""
    from yanmo.promote.page.run_notes import pause_sentence, render_pause

    if not options.dry_run:
        follow(store, options.channel)
    champion = read_pointer(store, options.channel, CHAMPION)
    return Finish(
        parameters={"promoted": "false", "result": pause_sentence(paused).en},
        artifacts={
            "report": render_pause(paused, options.channel, named(champion) if champion else ""),
            "verdict_line": pause_sentence(paused).en + "\n",
            **_champion(store, options.channel),
        },
    )


def _champion(store: ObjectStore, channel: str) -> dict[str, str]:
    """The channel's champion as this run leaves it: what a deployment takes."""
    champion = read_pointer(store, channel, CHAMPION)
    return {"champion": champion.to_json()} if champion else {}


Became = Literal["champion", "champion already", "held", "nothing"]


def _became(run: PromoteRun, output: Output, verdict: dict[str, Any]) -> Became:
    """Promote the challenger if the verdict says so; return what it is then.

    A verdict that was found may promote now all the same: its own run was held, or had no right to the
    pointer.
    """
    if run.options.dry_run:
        return "nothing"
    store, channel, evaluation = run.store, run.options.channel, run.input("challenger")
    model, (now, last) = open_evaluation(evaluation).model, champion_of(store, channel)
    try:
        follow(store, channel)
        if now is not None and now.content_digest == model.content_digest:
            since = f" since {last.since}" if last else ""
            log.info("%s is already champion of channel %r%s", model, channel, since)
            return "champion already"
        if not verdict["promote"] or run.options.hold:
            return "held" if verdict["promote"] else "nothing"
        promotion = Promotion(
            model=model,
            evaluation=evaluation,
            verdict=output,
            previous=run.prepared.champion,
            last=run.prepared.last,
            compared_with=run.inputs["champion"],
        )
        record = make_champion(store, channel, promotion)
    except EnvironmentFault as error:
        raise EnvironmentFault(
            f"{error}. The verdict is kept and no pointer was moved: with --hold the pointer stays for a "
            f"person who may write pointers/{channel}/ and runs yanmo promote set (docs/reference/promote.md)"
        ) from error
    log.info("%s is champion of channel %r (number %d)", model, channel, record.number)
    return "champion"
