"""The main output: train without anything of the evaluation set, and a copy of valid."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.chinese.text_runs import Runs
from yanmo.common.errors import DataError
from yanmo.common.freed_memory import trim_heap
from yanmo.common.words import plural
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.decisions import Sums, write_decisions
from yanmo.curate.document_files import write_splits
from yanmo.curate.limits import check_share, genres_above
from yanmo.curate.map_report import sort_genres
from yanmo.curate.report import PAGE, describe, log_table, page
from yanmo.curate.split.containment import (
    FORM_OF_WORDS,
    HIGH_COVERAGE,
    Contained,
    common_runs,
    coverage,
    fewest_to_drop,
    find_contained,
    note_passages,
)
from yanmo.curate.split.evaluation_set import EvaluationSet
from yanmo.formats.decisions import DECISIONS_FILE
from yanmo.store.commit import Attempt, Result

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.signedinteger[Any]]
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
    before = corpus.number_of("kept")
    left_for_training(corpus, evaluation_set, benchmarks, options, report)
    if not corpus.number_of("kept"):
        raise DataError(
            f"nothing is left to train on: of {plural(before, 'document')} "
            f"{corpus.report.tally.documents('evaluation_set')} are in the evaluation set or near it and "
            f"{corpus.report.tally.documents('overlap')} share a run with it; give more text"
        )
    licenses: dict[str, int] = {}
    sums: Sums = {}

    def meanwhile() -> None:
        sums.update(write_decisions(corpus, attempt.path(DECISIONS_FILE)))
        attempt.add(DECISIONS_FILE, role="record")
        licenses.update(corpus.licenses("kept"))
        for path in evaluation_set.part.paths("valid-*.parquet"):
            shutil.copyfile(path, attempt.path(path.name))
            attempt.add(path.name)

    trim_heap()
    counts = write_splits(
        attempt, corpus, {"train": "kept"}, options.shard_characters, options.workers, meanwhile=meanwhile
    )
    for what, by_split in counts.items():
        by_split["valid"] = evaluation_set.part.manifest.counts[what]["valid"]
    corpus.count("train", "kept")
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
) -> None:
    """Keep in `corpus` only what may be trained on; note the others in `report`."""
    _check_taken_down(corpus, evaluation_set)
    _drop_held_out(corpus, evaluation_set, options, report)
    _drop_benchmarks(corpus, benchmarks, options, report)
    corpus.show_examples()


def _drop_held_out(
    corpus: Corpus, evaluation_set: EvaluationSet, options: CurateOptions, report: dict[str, Any]
) -> None:
    """Drop the evaluation set, its clusters and what shares its runs."""
    held = evaluation_set.holds(corpus, options.near_duplicate_similarity)
    corpus.count("evaluation_set", f"kept semi join (from {held}) using (position)")
    if not options.overlap_characters:
        return
    corpus.tables.run("create or replace table examined as select position from kept")
    examined = "texts semi join examined using (position)"
    runs = _runs_to_miss(corpus, examined, evaluation_set, options, report)
    shared = find_contained(corpus, examined, runs, options.workers)
    overlapping = _overlapping(corpus, shared, runs, evaluation_set.texts, options, report)

    def without_confirmation() -> Ints:
        before = evaluation_set.without_confirmation()
        runs = _runs_to_miss(corpus, examined, before, options, {})
        shared = find_contained(corpus, examined, runs, options.workers)
        return _overlapping(corpus, shared, runs, before.texts, options, {})

    fewer = without_confirmation if evaluation_set.has_confirmation else None
    _drop_overlaps(corpus, overlapping, runs, "overlap", options, fewer)


def _overlapping(
    corpus: Corpus,
    shared: Contained,
    runs: Runs,
    held_out: Sequence[str],
    options: CurateOptions,
    report: dict[str, Any],
) -> Ints:
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
    positions, workers = shared.positions, options.workers
    if not options.overlap_share or not len(positions):
        return positions
    some = corpus.at(positions, "sharing")
    sizes = corpus.tables.table(f"select characters from {some} order by home, position")["characters"]
    limit = _PHRASE / np.maximum(sizes.to_numpy(), 1)
    limit = np.maximum(options.overlap_share, np.minimum(HIGH_COVERAGE, limit))
    found = Runs(runs.length, shared.hashes)
    common = common_runs(corpus, some, found, workers, FORM_OF_WORDS)
    report["common_runs"] = len(common)
    above = corpus.at(positions[shared.shares > limit], "above")
    rare = find_contained(corpus, above, runs.without(common), workers)
    overlapping = rare.positions[rare.shares > limit[np.isin(positions, rare.positions)]]
    left = corpus.at(np.setdiff1d(positions, overlapping), "below")
    return np.union1d(overlapping, fewest_to_drop(corpus, left, runs, held_out, workers))


def _runs_to_miss(
    corpus: Corpus,
    examined: str,
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
    forms = Runs(length, common_runs(corpus, examined, asked, options.workers, FORM_OF_WORDS))
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


def _drop_benchmarks(
    corpus: Corpus, benchmarks: Sequence[str], options: CurateOptions, report: dict[str, Any]
) -> None:
    """Drop documents that share a run with a benchmark."""
    if not benchmarks:
        return
    runs = Runs.of(benchmarks, options.overlap_characters)
    shared = find_contained(corpus, "kept", runs, options.workers)
    covered = coverage(benchmarks, runs, shared.hashes)
    found = report["benchmarks_in_train"] = {
        "texts": len(benchmarks),
        "with_a_shared_run": int((covered > 0).sum()),
        "with_a_fifth_shared": int((covered > HIGH_COVERAGE).sum()),
    }
    overlapping = _overlapping(corpus, shared, runs, benchmarks, options, found)
    _drop_overlaps(corpus, overlapping, runs, "benchmark", options)


def _drop_overlaps(
    corpus: Corpus,
    overlapping: Ints,
    runs: Runs,
    reason: str,
    options: CurateOptions,
    fewer: Callable[[], Ints] | None = None,
) -> None:
    """Count what shares a run, and drop it if not too much does.

    Args:
        runs: those that are shared, for the table of decisions.
        fewer: gives what shares a run with test and valid alone. A confirmation split is no reason to stop
            where these two are none, so a limit that only all three pass is a warning.
    """
    chosen = corpus.at(overlapping, "overlapping")
    corpus.count(reason, chosen)
    note_passages(corpus, chosen, runs, options.workers)
    corpus.show_examples()
    corpus.show_examples_of(reason, chosen, genres_above(corpus.report, reason, options.max_overlap_share))
    try:
        allowed, dry = options.max_overlap_share, options.dry_run
        check_share(corpus.report, reason, allowed, "--max-overlap-share ", is_dry_run=dry)
    except DataError as error:
        if fewer is None or _is_too_much(corpus, fewer(), options.max_overlap_share):
            raise
        log.warning("because of the confirmation split alone, %s", error)


def _is_too_much(corpus: Corpus, positions: Ints, allowed: float) -> bool:
    """Return whether so many documents of all or of a genre are above the allowed share."""
    name, tally = "with test and valid", corpus.report.tally
    corpus.count(name, corpus.at(positions, "fewer"))
    above = genres_above(corpus.report, name, allowed)
    tally.counts.pop(name, None)
    return bool(above)


def _check_taken_down(corpus: Corpus, evaluation_set: EvaluationSet) -> None:
    if not corpus.excluded_ids:
        return
    held = sorted(corpus.excluded_ids & evaluation_set.ids)
    corpus.tables.add("theirs", digest=pa.array(evaluation_set.clusters, pa.string()))
    copies = corpus.number_of("theirs join texts on cluster = digest::uuid where home in (from excluded)")
    if held or copies:
        raise DataError(
            f"the pinned evaluation set {evaluation_set.part} holds {max(len(held), copies)} of the "
            f"documents to take down ({', '.join(held[:3]) or 'as copies'}); choose a new one with "
            "--evaluation-set none and evaluate the champion again"
        )
