"""The main output: train without anything that the evaluation set knows, and valid passed on."""

from __future__ import annotations

import json
import logging
import shutil
from typing import Any

import numpy as np
import pyarrow.compute as pc

from yanmo.common.errors import DataError
from yanmo.common.records import TEXT_FORM
from yanmo.common.store.commit import Attempt, Result
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus, check_share
from yanmo.curate.evaluation_set import EvaluationSet
from yanmo.curate.report import describe, log_table
from yanmo.curate.tally import sort_genres
from yanmo.curate.writing import write_rows

log = logging.getLogger(__name__)


def write_documents(
    attempt: Attempt, corpus: Corpus, evaluation_set: EvaluationSet, options: CurateOptions
) -> Result:
    """Write `train-*.parquet`, `valid-*.parquet` and `report.json`.

    Raises:
        DataError: nothing is left to train on, or the evaluation set takes more than its allowed share.
    """
    _check_taken_down(corpus, evaluation_set)
    is_member = evaluation_set.is_member(corpus)
    overlaps = evaluation_set.overlaps(corpus) & ~is_member
    corpus.count("evaluation_set", corpus.kept[is_member])
    corpus.count("overlap", corpus.kept[overlaps])
    corpus.show_examples()
    check_share(corpus.report, "overlap", options.max_filter_share)
    positions = np.flatnonzero(~is_member & ~overlaps)
    if not len(positions):
        raise DataError(
            f"nothing is left to train on: of {len(corpus.kept)} documents {is_member.sum()} are in the "
            f"evaluation set and {overlaps.sum()} share a run of characters with it; give more text"
        )
    train = write_rows(attempt, corpus, positions, "train", options.shard_characters)
    corpus.count("train", corpus.kept[positions])
    licenses = _licenses(corpus, positions)
    counts = {what: {"train": train[what], "valid": _valid_counts(evaluation_set, what)} for what in train}
    for path in evaluation_set.part.paths("valid-*.parquet"):
        shutil.copyfile(path, attempt.path(path.name))
        attempt.add(path.name)
    report = {
        **describe(corpus.report),
        "evaluation_set": evaluation_set.part.manifest.counts,
        "licenses": licenses,
    }
    attempt.write("report.json", json.dumps(report, ensure_ascii=False, indent=1) + "\n", role="record")
    log_table(corpus.report, evaluation_set.part.manifest.counts)
    genres = sort_genres({g for split in counts["documents"].values() for g in split})
    metadata = {"text_form": TEXT_FORM, "genres": genres, "licenses": licenses}
    return Result(counts=counts, metadata=metadata)


def _valid_counts(evaluation_set: EvaluationSet, what: str) -> dict[str, int]:
    counts: dict[str, int] = evaluation_set.part.manifest.counts[what]["valid"]
    return counts


def _check_taken_down(corpus: Corpus, evaluation_set: EvaluationSet) -> None:
    held = sorted(corpus.excluded_ids & evaluation_set.ids)
    copies = corpus.excluded_clusters & evaluation_set.clusters
    if held or copies:
        raise DataError(
            f"the pinned evaluation set {evaluation_set.part} holds {max(len(held), len(copies))} of the "
            f"documents to take down ({', '.join(held[:3]) or 'as copies'}); choose a new one with "
            "--evaluation-set none and evaluate the champion again"
        )


def _licenses(corpus: Corpus, positions: Any) -> dict[str, int]:
    """Training documents under each licence."""
    column = corpus.rows(corpus.kept[positions], ("license",))["license"]
    found = {entry["values"]: entry["counts"] for entry in pc.value_counts(column).to_pylist()}
    return dict(sorted(found.items()))
