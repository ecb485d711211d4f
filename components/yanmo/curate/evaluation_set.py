"""The evaluation set: chosen once, then pinned; and what may not be trained on because of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.common.documents import read_documents
from yanmo.common.errors import DataError
from yanmo.common.logs import Progress
from yanmo.common.records import TEXT_FORM
from yanmo.common.store.commit import Attempt, Result
from yanmo.common.store.output import Output
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.mapping import cluster_digest
from yanmo.curate.normalize import HAN, class_table, code_points
from yanmo.curate.overlap import Runs
from yanmo.curate.plan import SplitSize, hold_out
from yanmo.curate.tally import sort_genres
from yanmo.curate.writing import write_rows

log = logging.getLogger(__name__)

Bools = npt.NDArray[np.bool_]

_FEW = 20
"""With fewer test documents of a genre its figure means little."""


def build_evaluation_set(attempt: Attempt, corpus: Corpus, options: CurateOptions) -> Result:
    """Choose valid and test from `corpus` and write them.

    Raises:
        DataError: there is not enough text for both.
    """
    candidates, kept = corpus.candidates, corpus.kept
    sizes = [
        SplitSize(
            characters=options.test_characters,
            share=options.test_share,
            min_documents=options.min_split_documents,
        ),
        SplitSize(
            characters=options.valid_characters,
            share=options.valid_share,
            min_documents=options.min_split_documents,
        ),
    ]
    held_out = hold_out(candidates.genre[kept], candidates.characters[kept], sizes)
    counts: dict[str, dict[str, dict[str, int]]] = {"documents": {}, "characters": {}}
    for split, positions in zip(("test", "valid"), held_out, strict=True):
        if not len(positions):
            raise DataError(
                f"too little text to hold out a {split} split: {len(kept)} documents are left after filters "
                f"and copies; give more text, or raise --min-split-documents or --{split}-share"
            )
        written = write_rows(attempt, corpus, positions, split, options.shard_characters)
        for what in counts:
            counts[what][split] = written[what]
    _warn_of_small_genres(corpus, counts["documents"]["test"])
    genres = sort_genres(counts["documents"]["test"])
    return Result(counts=counts, metadata={"text_form": TEXT_FORM, "genres": genres})


def _warn_of_small_genres(corpus: Corpus, documents: dict[str, int]) -> None:
    for genre in sort_genres(set(corpus.candidates.genre[corpus.kept].tolist())):
        number = documents.get(genre, 0)
        if number < _FEW:
            log.warning("genre %s has %d test documents: its figure will be uncertain", genre, number)


@dataclass(frozen=True, kw_only=True)
class EvaluationSet:
    """A pinned evaluation set, and how training text is kept apart from it."""

    part: Output
    ids: set[str]
    clusters: set[str]
    """Digests (hexadecimal) of the Han characters of its documents."""
    runs: Runs | None

    @classmethod
    def open(cls, part: Output, run_length: int) -> EvaluationSet:
        """Read the set.

        Args:
            run_length: Han characters in a row that may not be shared; 0 allows all.
        """
        tables = [read_documents(path, ("id", "text")) for path in part.paths("*.parquet")]
        table = pa.concat_tables(tables)
        texts = table["text"].to_pylist()
        return cls(
            part=part,
            ids=set(table["id"].to_pylist()),
            clusters={cluster_digest(_han(text), text).hex() for text in texts},
            runs=Runs.of(texts, run_length) if run_length else None,
        )

    def is_member(self, corpus: Corpus) -> Bools:
        """Which of the corpus' kept documents are in the set, as copies at least."""
        clusters = corpus.candidates.cluster[corpus.kept]
        return np.isin(clusters, np.array(sorted(self.clusters), dtype="S"))

    def overlaps(self, corpus: Corpus) -> Bools:
        """Which of the corpus' kept documents share a run of characters with the set."""
        result = np.zeros(len(corpus.kept), dtype=np.bool_)
        if self.runs is None:
            return result
        file = corpus.candidates.file[corpus.kept]
        progress = Progress(log, "compared with the evaluation set", len(file), unit="documents")
        for index in np.unique(file):
            positions = np.flatnonzero(file == index)
            texts = corpus.rows(corpus.kept[positions], ("text",))["text"].to_pylist()
            result[positions] = self.runs.found_in(texts)
            progress.add(len(positions))
        return result


def _han(text: str) -> str:
    codes = code_points(text)
    return str(codes[class_table()[codes] == HAN].tobytes(), "utf-32-le")
