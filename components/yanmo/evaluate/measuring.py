"""All that an evaluation asks of a model, piece by piece: scores, samples, tasks, questions of the harness.

The pieces come in the same order in every rank (pieces.py); what they give is all that the output holds.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from yanmo.common.stage_run import StageRun
from yanmo.evaluate.asking import measure_tasks
from yanmo.evaluate.budget import OPERATIONS_PER_MINUTE, affordable, first_of_each_genre
from yanmo.evaluate.documents import Document, check_same_form, genre_order, read_split
from yanmo.evaluate.harness import run_harness
from yanmo.evaluate.pieces import Pieces
from yanmo.evaluate.samples import SampleOptions, write_samples
from yanmo.evaluate.scoring import LoadedModel, Scores, encode, load_model, operations, score

log = logging.getLogger(__name__)


class Measured(NamedTuple):
    """What was asked of a model and what it gave."""

    documents: list[Document]
    scores: Scores
    per_genre: int
    """Documents of each genre that were scored; 0 for all."""
    answers: dict[str, Any]
    """File -> its value: samples, tasks, harness."""


def measure(run: StageRun, pieces: Pieces) -> Measured:
    """The documents of the evaluation set within the budget, and the model's figures and answers."""
    options, evaluation_set = run.options, run.input("evaluation_set")
    documents = read_split(evaluation_set, options.split)
    check_same_form(evaluation_set, run.input("model"), "a model of")
    loaded = load_model(run.input("model"), options.device)
    number = _documents_per_genre(loaded, documents, options)
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
    return Measured(documents, scores, number, answers | _answers(run, loaded, documents, pieces))


def _samples(run: StageRun, loaded: LoadedModel, genres: list[str], pieces: Pieces) -> dict[str, Any]:
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
    run: StageRun, loaded: LoadedModel, documents: Sequence[Document], pieces: Pieces
) -> dict[str, Any]:
    """What the model answers to our own tasks and to the harness's, where they are asked for."""
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
        figures = run_harness(
            loaded,
            options.harness_tasks,
            limit=options.harness_limit,
            workers=options.workers,
            pieces=pieces,
        )
        found["harness"] = {"schema": "yanmo.harness/1", **figures}
    return found


def _documents_per_genre(loaded: LoadedModel, documents: Sequence[Document], options: Any) -> int:
    """How many documents of each genre the budget allows; 0 for all."""
    largest = max(Counter(d.genre for d in documents).values())
    number = options.budget_documents or largest
    if options.budget_minutes:
        cost = operations(
            loaded.model, [encode(loaded, d) for d in documents], options.stride, with_tag=options.with_tag
        )
        number = min(number, affordable(documents, cost, options.budget_minutes * OPERATIONS_PER_MINUTE))
    if number >= largest:
        return 0
    log.info("budget: %d documents of each genre, of %d in the largest", number, largest)
    return int(number)
