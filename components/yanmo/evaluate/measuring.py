"""All that an evaluation asks a model, piece by piece: scores, samples, tasks, questions of the harness.

The pieces come in the same order in every rank (pieces.py); what they give is all that the output holds.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from yanmo.common.words import plural
from yanmo.evaluate.bits.of_documents import LoadedModel, Scores, encode, load_model, operations, score
from yanmo.evaluate.bits.pieces import Pieces
from yanmo.evaluate.documents.budget import OPERATIONS_PER_MINUTE, affordable, first_of_each_genre
from yanmo.evaluate.documents.reading import (
    Document,
    check_same_form,
    genre_order,
    read_confirmation,
    read_split,
)
from yanmo.evaluate.hand_over import EvaluateRun
from yanmo.evaluate.plugins import plugin_answers
from yanmo.evaluate.tasks.asking import measure_tasks
from yanmo.evaluate.tasks.harness import run_harness
from yanmo.evaluate.writing.samples import SampleOptions, write_samples
from yanmo.formats.records import CONFIRM

log = logging.getLogger(__name__)


class EvaluationResult(NamedTuple):
    """What a model was asked and what it gave."""

    documents: list[Document]
    scores: Scores
    per_genre: int
    """Documents of each genre that were scored; 0 for all."""
    answers: dict[str, Any]
    """File -> its value: samples, tasks, harness."""
    confirmation: tuple[list[Document], Scores] | None
    """The same for the confirmation split; None where the set has none, or where another split than
    test is scored."""


def measure(run: EvaluateRun, pieces: Pieces) -> EvaluationResult:
    """The documents of the evaluation set within the budget, and the model's scores and answers."""
    options, evaluation_set = run.options, run.input("evaluation_set")
    documents = read_split(evaluation_set, options.split)
    confirmation = read_confirmation(evaluation_set, options.split)
    check_same_form(evaluation_set, run.input("model"), "a model of")
    loaded = load_model(run.input("model"), options.device)
    number = _documents_per_genre(loaded, documents, confirmation, options)
    documents = first_of_each_genre(documents, number)
    scores = score(
        loaded,
        documents,
        with_tag=options.with_tag,
        workers=options.workers,
        stride=options.stride,
        pieces=pieces,
    )
    genres = sorted({d.genre for d in documents}, key=genre_order)
    answers = {"samples": _samples(run, loaded, genres, pieces)}
    answers |= _answers(run, loaded, documents, pieces)
    if given := plugin_answers(options, loaded, documents, scores, pieces):
        answers["plugins"] = given
    confirmation = first_of_each_genre(confirmation, number)
    kept = (confirmation, _kept_scores(run, loaded, confirmation, pieces)) if confirmation else None
    return EvaluationResult(documents, scores, number, answers, kept)


def _kept_scores(
    run: EvaluateRun, loaded: LoadedModel, documents: Sequence[Document], pieces: Pieces
) -> Scores:
    """Scores that are written down and not looked at: nothing may log, show or export them.

    Without the genre tag, which only says something next to the headline metric.
    """
    log.info("scoring the confirmation split; its scores are kept for promote, and shown nowhere")
    return score(
        loaded,
        documents,
        with_tag=False,
        workers=run.options.workers,
        stride=run.options.stride,
        pieces=pieces,
        name=CONFIRM,
    )


def _samples(run: EvaluateRun, loaded: LoadedModel, genres: list[str], pieces: Pieces) -> dict[str, Any]:
    options = run.options
    sampling = SampleOptions(
        number=options.samples,
        most_tokens=options.sample_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        seed=options.seed,
    )
    return write_samples(loaded, genres, sampling, options.workers, pieces)


def _answers(
    run: EvaluateRun, loaded: LoadedModel, documents: Sequence[Document], pieces: Pieces
) -> dict[str, Any]:
    """The model's answers to our own tasks and to the harness's, where these are wanted."""
    options, found = run.options, {}
    if options.tasks != "none":
        answered = measure_tasks(
            loaded,
            documents,
            options.tasks,
            per_genre=options.task_documents,
            seed=options.seed,
            workers=options.workers,
            pieces=pieces,
        )
        found["tasks"] = {"schema": "yanmo.tasks/1", **answered}
    if options.harness_tasks:
        results = run_harness(
            loaded,
            options.harness_tasks,
            limit=options.harness_limit,
            workers=options.workers,
            pieces=pieces,
        )
        found["harness"] = {"schema": "yanmo.harness/1", **results}
    return found


def _documents_per_genre(
    loaded: LoadedModel, documents: Sequence[Document], confirmation: Sequence[Document], options: Any
) -> int:
    """How many documents of each genre the budget allows, in test and in confirm; 0 for all."""
    largest = max(Counter(d.genre for d in documents).values())
    number = options.budget_documents or largest
    if options.budget_minutes:
        cost, more = (
            operations(loaded.model, [encode(loaded, d) for d in each], options.stride, with_tag=with_tag)
            for each, with_tag in ((documents, options.with_tag), (confirmation, False))
        )
        own = cost.sum() / (cost.sum() + more.sum())
        most = options.budget_minutes * OPERATIONS_PER_MINUTE * float(own)
        number = min(number, affordable(documents, cost, most))
    if number >= largest:
        return 0
    log.info("budget: %s of each genre, of %d in the largest", plural(number, "document"), largest)
    return int(number)
