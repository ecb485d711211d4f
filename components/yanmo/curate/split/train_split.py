"""The main output: train without anything of the evaluation set, and a copy of valid."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.chinese.text_runs import Runs
from yanmo.common.disk_arrays import picked, taken, without
from yanmo.common.errors import DataError
from yanmo.common.freed_memory import trim_heap
from yanmo.common.words import plural
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.decisions import Sums, write_decisions
from yanmo.curate.document_files import write_splits
from yanmo.curate.limits import check_share, genres_above
from yanmo.curate.report import PAGE, describe, log_table, page
from yanmo.curate.split.containment import (
    FORM_OF_WORDS,
    HIGH_COVERAGE,
    Contained,
    common_runs,
    coverage,
    fewest_to_drop,
    find_contained,
)
from yanmo.curate.split.evaluation_set import EvaluationSet
from yanmo.curate.tally import sort_genres
from yanmo.formats.decisions import DECISIONS_FILE
from yanmo.store.commit import Attempt, Result

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]
Bools = npt.NDArray[np.bool_]
_PHRASE = 50
"""Fewer characters than this in common are a phrase."""


def write_documents(
    attempt: Attempt,
    corpus: Corpus,
    evaluation_set: EvaluationSet,
    benchmarks: Sequence[str],
    options: CurateOptions,
) -> Result:
    """Write `train-*.parquet`, `valid-*.parquet`, `decisions.parquet`, `report.json` and `report.md`.

    Args:
        benchmarks: normalized texts that train may not share runs with.

    Raises:
        DataError: nothing is left to train on, or the evaluation set takes more than its allowed share.
    """
    report: dict[str, Any] = {}
    positions = left_for_training(corpus, evaluation_set, benchmarks, options, report)
    if not len(positions):
        raise DataError(
            f"nothing is left to train on: of {plural(len(corpus.kept), 'document')} "
            f"{corpus.report.tally.documents('evaluation_set')} are in the evaluation set or near it and "
            f"{corpus.report.tally.documents('overlap')} share a run with it; give more text"
        )
    licenses: dict[str, int] = {}
    sums: Sums = {}

    def meanwhile() -> None:
        sums.update(write_decisions(corpus, attempt.path(DECISIONS_FILE)))
        attempt.add(DECISIONS_FILE, role="record")
        licenses.update(corpus.licenses(taken(corpus.copies.unique, positions)))
        for path in evaluation_set.part.paths("valid-*.parquet"):
            shutil.copyfile(path, attempt.path(path.name))
            attempt.add(path.name)

    trim_heap()
    train = {"train": positions}
    counts = write_splits(
        attempt, corpus, train, options.shard_characters, options.workers, meanwhile=meanwhile
    )
    for what, by_split in counts.items():
        by_split["valid"] = _valid_counts(evaluation_set, what)
    corpus.count("train", taken(corpus.copies.unique, positions))
    report = {
        **describe(corpus.report, options),
        **report,
        "evaluation_set": evaluation_set.part.manifest.counts,
        "licenses": licenses,
    }
    attempt.write("report.json", json.dumps(report, ensure_ascii=False, indent=1) + "\n", role="record")
    attempt.write(PAGE, page(corpus.report, sums), role="record")
    log_table(corpus.report, evaluation_set.part.manifest.counts)
    genres = sort_genres({g for split in counts["documents"].values() for g in split})
    metadata = {"text_form": corpus.form, "genres": genres, "licenses": licenses}
    return Result(counts=counts, metadata=metadata)


def left_for_training(
    corpus: Corpus,
    evaluation_set: EvaluationSet,
    benchmarks: Sequence[str],
    options: CurateOptions,
    report: dict[str, Any],
) -> Ints:
    """Return the positions that nothing keeps out of training; note the others in `report`."""
    _check_taken_down(corpus, evaluation_set)
    positions = _without_held_out(corpus, evaluation_set, options, report)
    positions = _without_benchmarks(corpus, positions, benchmarks, options, report)
    corpus.show_examples()
    return positions


def _valid_counts(evaluation_set: EvaluationSet, what: str) -> dict[str, int]:
    counts: dict[str, int] = evaluation_set.part.manifest.counts[what]["valid"]
    return counts


def _without_held_out(
    corpus: Corpus, evaluation_set: EvaluationSet, options: CurateOptions, report: dict[str, Any]
) -> Ints:
    """Return the positions left for training after the evaluation set, its clusters and its runs."""
    held = taken(
        evaluation_set.holds(corpus, options.near_duplicate_similarity, options.workers), corpus.kept
    )
    corpus.count("evaluation_set", corpus.copies.unique[picked(corpus.kept, held)])
    positions = without(corpus.kept, held)
    if not options.overlap_characters:
        return positions
    runs = _runs_to_miss(corpus, positions, evaluation_set, options, report)
    shared = find_contained(corpus, positions, runs, options.workers)
    report["evaluation_set_in_train"] = evaluation_set.report(runs, shared.hashes)
    overlapping = _overlapping(corpus, positions, shared, runs, evaluation_set.texts, options, report)

    def without_confirmation() -> Bools:
        before = evaluation_set.without_confirmation()
        runs = _runs_to_miss(corpus, positions, before, options, {})
        shared = find_contained(corpus, positions, runs, options.workers)
        return _overlapping(corpus, positions, shared, runs, before.texts, options, {})

    fewer = without_confirmation if evaluation_set.has_confirmation else None
    return _without_overlaps(corpus, positions, overlapping, runs, "overlap", options, fewer)


def _overlapping(
    corpus: Corpus,
    positions: Ints,
    shared: Contained,
    runs: Runs,
    held_out: Sequence[str],
    options: CurateOptions,
    report: dict[str, Any],
) -> Bools:
    """Return the documents that overlap by --overlap-share of themselves, or of a held-out text.

    A manual of software quotes a command and its title in many pages; one run of 13 units in 5,000 is no
    leak; nor is a phrase of fewer than _PHRASE characters in a short answer, unless it is a fifth of it. Of a
    document, what common runs cover (imports, notes on a page of options) does not count. Of a
    held-out text all counts: what is left of train holds at most HIGH_COVERAGE of any.

    Alternative not taken: splitting documents at what they share, as GPT-3's filter does (Brown et al., 2020,
    appendix C). Of five Chinese documentations (benchmarks/NOTES.md) 4.5 % of the characters are dropped;
    1.5 % of the rest lie in shared passages of half of the documents, and a hole in each is no gain. Llama 3
    (2024, section 5.1.4) and OLMo (Paloma, 2023) go by a share of the text, as this does.
    """
    some = np.flatnonzero(shared.shares > 0)
    if not options.overlap_share or not len(some):
        return np.asarray(shared.shares > options.overlap_share)
    sizes = np.maximum(taken(corpus.candidates.characters, taken(corpus.copies.unique, positions)), 1)
    limit = np.maximum(options.overlap_share, np.minimum(HIGH_COVERAGE, _PHRASE / sizes))
    overlapping = np.asarray(shared.shares > limit)
    found, workers = Runs(runs.length, shared.hashes), options.workers
    common = common_runs(corpus, positions[some], found, workers, FORM_OF_WORDS)
    report["common_runs"] = len(common)
    above = np.flatnonzero(overlapping)
    rare = find_contained(corpus, positions[above], runs.without(common), workers)
    overlapping[above] = rare.shares > limit[above]
    left = some[~overlapping[some]]
    overlapping[left] = fewest_to_drop(corpus, positions[left], runs, held_out, workers)
    return overlapping


def _runs_to_miss(
    corpus: Corpus,
    positions: Ints,
    evaluation_set: EvaluationSet,
    options: CurateOptions,
    report: dict[str, Any],
) -> Runs:
    """Return the runs of the evaluation set that train may not contain: all but common phrases of questions.

    Chats made from a template share its words ("restore the punctuation of the following text"), and
    asking in the same words does not leak a held-out chat. NeMo Curator's TaskDecontamination ignores any
    run that is found more than `max_matches` (10) times. Here that holds only for questions, which carry
    no loss and are not scored: an answer or a plain text that eleven documents quote is leaked. Runs that
    touch such a phrase are ignored too: the end of a template with the first character of a text is no
    copy.
    """
    length = options.overlap_characters
    runs = Runs.of(evaluation_set.texts, length)
    chats = evaluation_set.compared.chats
    if not chats:
        return runs
    charged = evaluation_set.compared.charged(length)
    asked = Runs.of(chats, length).without(charged.hashes)
    forms = Runs(length, common_runs(corpus, positions, asked, options.workers, FORM_OF_WORDS))
    report["forms_of_words"] = len(forms.hashes)
    if not len(forms.hashes):
        return runs
    log.info(
        "%s of %s of held-out questions stand in more than %d training documents each: "
        "forms of words, not copies",
        plural(len(forms.hashes), "run"),
        plural(length, "character"),
        FORM_OF_WORDS,
    )
    return runs.without(forms.touched_in(chats).without(charged.hashes).hashes)


def _without_benchmarks(
    corpus: Corpus, positions: Ints, benchmarks: Sequence[str], options: CurateOptions, report: dict[str, Any]
) -> Ints:
    """Return the positions left after documents that share a run with a benchmark."""
    if not benchmarks:
        return positions
    runs = Runs.of(benchmarks, options.overlap_characters)
    shared = find_contained(corpus, positions, runs, options.workers)
    covered = coverage(benchmarks, runs, shared.hashes)
    found = report["benchmarks_in_train"] = {
        "texts": len(benchmarks),
        "with_a_shared_run": int((covered > 0).sum()),
        "with_a_fifth_shared": int((covered > HIGH_COVERAGE).sum()),
    }
    overlapping = _overlapping(corpus, positions, shared, runs, benchmarks, options, found)
    return _without_overlaps(corpus, positions, overlapping, runs, "benchmark", options)


def _without_overlaps(
    corpus: Corpus,
    positions: Ints,
    shares: Bools,
    runs: Runs,
    reason: str,
    options: CurateOptions,
    fewer: Callable[[], Bools] | None = None,
) -> Ints:
    """Count what shares a run, and remove it if not too much does; or only report it.

    Args:
        runs: those that are shared, for the table of decisions.
        fewer: gives what shares a run with test and valid alone. A confirmation split is no reason to stop
            where these two are none, so a limit that only all three pass is a warning.
    """
    is_removed = options.overlap_action == "remove"
    name = reason if is_removed else f"{reason}_reported"
    chosen = corpus.copies.unique[picked(positions, shares)]
    corpus.count(name, chosen)
    corpus.shared[name] = runs
    corpus.show_examples()
    if not is_removed:
        if len(chosen):
            found = plural(len(chosen), "document")
            log.warning("%s: %s stay as --overlap-action is report", reason, found)
        return positions
    corpus.show_examples_of(name, chosen, genres_above(corpus.report, name, options.max_overlap_share))
    try:
        check_share(corpus.report, name, options.max_overlap_share, "--max-overlap-share ")
    except DataError as error:
        if fewer is None or _is_too_much(corpus, picked(positions, fewer()), options.max_overlap_share):
            raise
        log.warning("because of the confirmation split alone, %s", error)
    return without(positions, shares)


def _is_too_much(corpus: Corpus, positions: Ints, allowed: float) -> bool:
    """Return whether so many documents of all or of a genre are above the allowed share."""
    name, tally = "with test and valid", corpus.report.tally
    corpus.count(name, corpus.copies.unique[positions])
    above = genres_above(corpus.report, name, allowed)
    tally.counts.pop(name, None)
    return bool(above)


def _check_taken_down(corpus: Corpus, evaluation_set: EvaluationSet) -> None:
    held = sorted(corpus.excluded_ids & evaluation_set.ids)
    down = corpus.digests(np.flatnonzero(corpus.is_excluded))
    copies = np.isin(evaluation_set.clusters, down).sum()
    if held or copies:
        raise DataError(
            f"the pinned evaluation set {evaluation_set.part} holds {max(len(held), int(copies))} of the "
            f"documents to take down ({', '.join(held[:3]) or 'as copies'}); choose a new one with "
            "--evaluation-set none and evaluate the champion again"
        )
