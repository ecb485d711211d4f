"""`yanmo curate --dry-run`: all that a run decides, in a store of its own that is thrown away."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from yanmo.common.errors import DataError
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus, Handed
from yanmo.curate.decisions import write_decisions
from yanmo.curate.limits import check_filters
from yanmo.curate.report import log_page
from yanmo.curate.split.benchmark_files import benchmark_texts
from yanmo.curate.split.evaluation_set import EvaluationSet
from yanmo.curate.split.train_split import left_for_training
from yanmo.curate.text.record_rules import max_record_bytes, record_rules
from yanmo.formats.decisions import DECISIONS_FILE
from yanmo.stage.stage_run import Skip, StageRun
from yanmo.store.opening import open_store
from yanmo.store.runs.in_use import Session

log = logging.getLogger(__name__)


def show_plan(
    run: StageRun[CurateOptions, Handed],
    made: Handed,
    prepare: Callable[[], object],
    corpus_of: Callable[[], Corpus],
) -> NoReturn:
    """Log what a run would keep and drop, then end as the run would, but with nothing in the store.

    Args:
        prepare: fills `made`.
        corpus_of: gives the corpus, read once.

    Raises:
        DataError: what would end the run; the first of several.
        Skip: nothing would.
    """
    asked, problems = run.options, list[DataError]()
    run.options = dataclasses.replace(asked, max_filter_share=1.0)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="yanmo-dry-run-", dir=asked.scratch or None)
        )
        run.store = open_store(f"{folder}/store")
        run.session = stack.enter_context(contextlib.closing(Session(run.store, run.stage.name)))
        try:
            prepare()
            assert made.evaluation_set is not None
            held_out = EvaluationSet.open(made.evaluation_set, asked.split_by)
            benchmarks = benchmarks_of(asked, made)
            left_for_training(corpus_of(), held_out, benchmarks, run.options, {})
        except DataError as error:
            if made.corpus is None:
                raise
            problems.append(error)
        corpus = corpus_of()
        corpus.show_examples()
        log_page(corpus.report, write_decisions(corpus, Path(folder, DECISIONS_FILE)))
    try:
        check_filters(corpus.report, asked)
    except DataError as error:
        problems.insert(0, error)
    for problem in problems[1:]:
        log.warning("%s", problem)
    if problems:
        raise problems[0]
    raise Skip("a dry run commits nothing and pins nothing; without --dry-run the run makes this")


def benchmarks_of(options: CurateOptions, made: Handed) -> list[str]:
    """Return the texts of --benchmarks, as they are compared."""
    most = max_record_bytes(options.max_characters)
    return benchmark_texts(made.benchmarks, options.overlap_characters, most, record_rules(options))
