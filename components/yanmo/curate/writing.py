"""Phase `write`: planned documents as documents v1, in the order of their ids."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.documents import write_split
from yanmo.common.logs import Progress
from yanmo.common.store.commit import Attempt
from yanmo.curate.corpus import Corpus
from yanmo.curate.mapping import DOCUMENT_COLUMNS
from yanmo.curate.tally import sort_genres

log = logging.getLogger(__name__)

Ints = npt.NDArray[np.int64]


def write_rows(
    attempt: Attempt, corpus: Corpus, positions: Ints, split: str, shard_characters: int
) -> dict[str, dict[str, int]]:
    """Write the corpus' kept documents at `positions` as `split`.

    Returns:
        {"documents": genre -> number, "characters": genre -> number}
    """
    candidates = corpus.candidates
    positions = positions[np.argsort(candidates.id[corpus.kept[positions]], kind="stable")]
    chosen = corpus.kept[positions]
    characters = candidates.characters[chosen]
    progress = Progress(log, f"wrote {split}", len(chosen), unit="documents")

    def rows(start: int, stop: int) -> dict[str, Any]:
        table = corpus.rows(chosen[start:stop], DOCUMENT_COLUMNS)
        clusters = candidates.cluster[chosen[start:stop]].tolist()
        progress.add(stop - start)
        return {
            **{name: table[name] for name in DOCUMENT_COLUMNS},
            "split": [split] * (stop - start),
            "cluster_id": [cluster.decode() for cluster in clusters],
            "cluster_size": corpus.cluster_sizes[positions[start:stop]],
        }

    write_split(attempt, split, characters, shard_characters, rows)
    return count_by_genre(candidates.genre[chosen], characters)


def count_by_genre(genre: npt.NDArray[np.object_], characters: Ints) -> dict[str, dict[str, int]]:
    """Documents and characters of each genre, genres in the order of tables."""
    names = sort_genres(set(genre.tolist()))
    return {
        "documents": {name: int((genre == name).sum()) for name in names},
        "characters": {name: int(characters[genre == name].sum()) for name in names},
    }
