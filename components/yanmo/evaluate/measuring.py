"""All that an evaluation asks a model: scores, samples, tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from yanmo.evaluate.document_bits import LoadedModel, Scores, load_model, score
from yanmo.evaluate.documents.reading import (
    Document,
    check_same_form,
    first_of_each_genre,
    genre_order,
    read_confirmation,
    read_split,
)
from yanmo.evaluate.hand_over import EvaluateRun
from yanmo.evaluate.plugins import plugin_answers
from yanmo.evaluate.tasks.asking import measure_tasks
from yanmo.evaluate.writing.samples import SampleOptions, write_samples

log = logging.getLogger(__name__)
_TOP_P = 0.95
"""Probability mass of the likeliest tokens that samples draw from."""


class EvaluationResult(NamedTuple):
    """What a model was asked and what it gave."""

    documents: list[Document]
    scores: Scores
    per_genre: int
    """Documents of each genre that were scored; 0 for all."""
    answers: dict[str, Any]
    """File -> its value: samples, tasks, plugins."""
    confirmation: tuple[list[Document], Scores] | None
    """The same for the confirmation split; None where the set has none, or where another split than
    test is scored."""


def measure(run: EvaluateRun) -> EvaluationResult:
    """The documents of the evaluation set within the budget, and the model's scores and answers."""
    options, evaluation_set = run.options, run.input("evaluation_set")
    documents = read_split(evaluation_set, options.split)
    confirmation = read_confirmation(evaluation_set, options.split)
    check_same_form(evaluation_set, run.input("model"), "a model of")
    loaded = load_model(run.input("model"), options.device)
    number = options.budget_documents
    if len(first_of_each_genre(documents, number)) == len(documents):
        number = 0
    documents = first_of_each_genre(documents, number)
    scores = score(
        loaded,
        documents,
        with_tag=True,
        workers=options.workers,
        stride=options.stride,
    )
    genres = sorted({d.genre for d in documents}, key=genre_order)
    answers = {"samples": _samples(run, loaded, genres)}
    if options.tasks != "none":
        answered = measure_tasks(
            loaded,
            documents,
            per_genre=options.task_documents,
            seed=options.seed,
            workers=options.workers,
        )
        answers["tasks"] = {"schema": "yanmo.tasks/1", **answered}
    if given := plugin_answers(options, documents, scores):
        answers["plugins"] = given
    confirmation = first_of_each_genre(confirmation, number)
    kept = (confirmation, _kept_scores(run, loaded, confirmation)) if confirmation else None
    return EvaluationResult(documents, scores, number, answers, kept)


def _kept_scores(run: EvaluateRun, loaded: LoadedModel, documents: Sequence[Document]) -> Scores:
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
    )


def _samples(run: EvaluateRun, loaded: LoadedModel, genres: list[str]) -> dict[str, Any]:
    options = run.options
    sampling = SampleOptions(
        number=options.samples,
        most_tokens=options.sample_tokens,
        temperature=options.temperature,
        top_p=_TOP_P,
        seed=options.seed,
    )
    return write_samples(loaded, genres, sampling, options.workers)
