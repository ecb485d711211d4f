"""The evaluate stage: score, summarize, write samples, and measure baselines."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from typing import TYPE_CHECKING, Any

from yanmo.common.answers import RESULTS_LATER
from yanmo.common.control_group import workers_for
from yanmo.common.errors import DataError, UsageError, advice
from yanmo.common.made_by import made_by
from yanmo.common.words import plural
from yanmo.evaluate.config import EvaluateConfig
from yanmo.evaluate.hand_over import EvaluateRun
from yanmo.evaluate.plugins import plugins_input
from yanmo.formats.documents import text_form
from yanmo.formats.genre_names import bits_metrics
from yanmo.nights.observer import NightObserver
from yanmo.options.fields import NONE
from yanmo.stage.making import beside
from yanmo.stage.stage_run import Finish, Prepared, Steps
from yanmo.store.commit import Result
from yanmo.store.output import Output, read_json

if TYPE_CHECKING:
    from yanmo.evaluate.measuring import EvaluationResult

log = logging.getLogger(__name__)
SCORING = "half-window/1"
"""How bits are measured; raised with any change that moves them. Evaluations of different rules are never
compared."""


def settle(run: EvaluateRun) -> EvaluateConfig:
    """The options, with the number of workers where nobody gave it."""
    return dataclasses.replace(run.options, workers=workers_for(run.options.workers))


def prepare(run: EvaluateRun) -> Prepared[None]:
    """Add plugins to the key."""
    return Prepared(None, dict(plugins_input(run.options)))


def work(run: EvaluateRun) -> Result:
    """Measure the model and commit the results."""
    # Imported here: a run that finds its key committed must not wait two seconds for torch.
    from yanmo.evaluate.document_bits import ran_on
    from yanmo.evaluate.documents.table import evaluation_table, write_documents
    from yanmo.evaluate.measures import Bootstrap, summarize
    from yanmo.evaluate.measuring import measure
    from yanmo.evaluate.writing.contamination import NAME, committed_contamination

    options, evaluation_set = run.options, run.input("evaluation_set")
    contaminated = committed_contamination(run)
    measured = measure(run)
    documents, scores = measured.documents, measured.scores
    bootstrap = Bootstrap(options.bootstrap_draws, options.seed)
    results = summarize(documents, scores.bits, bootstrap, scores.bits_with_tag, scores.tokens)
    chats = sum(bool(d.turns) for d in documents)
    shared = conditions(
        evaluation_set,
        options.split,
        stride=options.stride,
        documents_per_genre=measured.per_genre,
        has_chats=bool(chats),
    )
    summary = {
        "schema": "yanmo.evaluation/2",
        "conditions": shared,
        "model": run.input("model").content_digest,
        "bootstrap": vars(bootstrap),
        **results,
    }
    table = evaluation_table(documents, options.split, scores.tokens, scores.bits, scores.bits_with_tag)
    write_documents(run.attempt, "documents", table, text_form(evaluation_set))
    more = _keep_confirmation(run, measured)
    for name, value in {"summary": summary, **measured.answers}.items():
        run.attempt.write_json(f"{name}.json", value)
    _show(run, results)
    return Result(
        counts={
            "documents": len(documents),
            "characters": results["total"]["characters"],
            "chats": chats,
            **more,
        },
        metadata={
            "made_by": made_by(),
            "text_form": text_form(evaluation_set),
            "split": options.split,
            **ran_on(options.device),
        },
        references={NAME: contaminated} if contaminated else {},
    )


def _keep_confirmation(run: EvaluateRun, measured: EvaluationResult) -> dict[str, int]:
    """Write the scores of the confirmation split into a file of their own; gives the count of documents.

    No summary is made of them: nobody should know them before a challenger is to be confirmed
    (promote/gate/confirmation.py).
    """
    from yanmo.evaluate.documents.table import evaluation_table, write_documents

    if measured.confirmation is None:
        return {}
    documents, scores = measured.confirmation
    table = evaluation_table(documents, "confirm", scores.tokens, scores.bits, None)
    write_documents(run.attempt, "confirmation", table, text_form(run.input("evaluation_set")))
    return {"confirmation_documents": len(documents)}


def conditions(
    evaluation_set: Output,
    split: str,
    *,
    stride: int = 0,
    documents_per_genre: int = 0,
    has_chats: bool = False,
) -> dict[str, str]:
    """Return what two evaluations must have in common to be compared."""
    found = {
        "evaluation_set": evaluation_set.content_digest,
        "split": split,
        "text_form": text_form(evaluation_set),
        "scoring": f"stride-{stride}/1" if stride else SCORING,
    }
    if documents_per_genre:
        found["documents_per_genre"] = str(documents_per_genre)
    return found | ({"chats": "answers"} if has_chats else {})


def finish(run: EvaluateRun, output: Output) -> Finish:
    """Baselines, how the model writes, the table in the log, and the bits for KFP's UI."""
    from yanmo.evaluate.writing.contamination import report_contamination

    report_contamination(output)
    summary, counts = read_json(output, "summary.json"), output.manifest.counts
    number = int(summary["conditions"].get("documents_per_genre", 0))
    parts: dict[str, Output] = {}
    if run.inputs.get("documents") is None:
        if run.options.documents != NONE:  # who declines them by name, as for champion and base, knows it
            log.info("no training documents given: no baselines, and no search for copies")
    else:
        from yanmo.evaluate.writing.writing import committed_writing

        if counts["documents"] == counts.get("chats"):
            log.info("the evaluation set holds only chats: no baselines")
        else:
            from yanmo.evaluate.baselines.baselines import committed_baselines

            parts["baselines"] = committed_baselines(run, number)
        parts["writing"] = committed_writing(run, output)
    _log_results(summary, parts.get("baselines"))
    return Finish(references=parts, carried=_beside(run), metadata={"metrics": _shown(summary)})


def _beside(run: EvaluateRun) -> dict[str, Output]:
    """The evaluations of champion and base, for `promote`, which says what one that is missing means.

    Each is found where it was measured before. A champion that cannot be measured keeps nobody from the
    challenger's evaluation, which is committed already.
    """
    found: dict[str, Output] = {}
    for name in ("champion", "base"):
        model = run.inputs[name]
        if model is None:
            continue
        changes = {
            "model": json.dumps(vars(model.reference)),
            "champion": NONE,
            "base": NONE,
            "documents": NONE,
        }
        is_small = run.options.budget_documents > 0  # a trial's takes the place of no whole evaluation
        changes["pointer"] = NONE if is_small or run.options.pointer == NONE else f"{name}_evaluation"
        log.info("measuring the %s %s", name, model)
        try:
            found[name], _ = beside(run, STEPS, **changes)
        except (DataError, UsageError) as error:
            log.error("the %s %s cannot be measured: %s", name, model, advice(error))
    return found


def _log_results(summary: dict[str, Any], baselines: Output | None) -> None:
    """The table, once a run: where `yanmo run` prints it at its end, a line."""
    from yanmo.evaluate.documents.table import log_table

    if os.environ.get(RESULTS_LATER):
        bits, count = summary["mean"]["bits_per_character"], len(summary["genres"])
        log.info(
            "%.3f bits per character, mean of %s; the table comes at the end of the run",
            bits,
            plural(count, "genre"),
        )
        return
    log_table(summary, read_json(baselines, "summary.json") if baselines else None)


def _shown(summary: dict[str, Any]) -> dict[str, float]:
    """The bits for KFP's UI."""
    genres = {genre: values["bits_per_character"] for genre, values in summary["genres"].items()}
    return bits_metrics(summary["mean"]["bits_per_character"], genres)


def _show(run: EvaluateRun, results: dict[str, Any]) -> None:
    for genre, values in results["genres"].items():
        run.telemetry.set("bits_per_character", values["bits_per_character"], genre=genre)
    run.telemetry.set("mean_bits_per_character", results["mean"]["bits_per_character"])
    run.telemetry.add("documents", results["total"]["documents"])


STEPS = Steps(work, settle=settle, prepare=prepare, finish=finish, observer=NightObserver)
