"""What is added to a pinned evaluation set: a confirmation split, or texts of genres that it does not have.

Its files stay as they are, byte for byte, so results on them can be compared before and after.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.disk_arrays import numbers_where
from yanmo.common.errors import DataError
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.document_files import write_splits
from yanmo.curate.split.confirmation_split import split_size
from yanmo.curate.split.unshared import choose
from yanmo.curate.tally import sort_genres
from yanmo.formats.records import CONFIRM
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output

Ints = npt.NDArray[np.signedinteger[Any]]
Bools = npt.NDArray[np.bool_]


def add_confirmation(
    attempt: Attempt, pinned: Output, corpus: Corpus, is_held: Bools, options: CurateOptions
) -> Result:
    """The pinned set and a confirmation split chosen from `corpus`, for the genres of its test split.

    Args:
        is_held: for each position of the corpus, whether the pinned set contains it.

    Raises:
        DataError: a genre of the test split has no document left.
    """
    wanted = pinned.manifest.counts["documents"]["test"]
    (found,) = _chosen(corpus, is_held, wanted, [CONFIRM], options)
    if lacking := sort_genres(wanted.keys() - corpus.genres_of(found)):
        raise DataError(
            f"{pinned}: its test split has texts of genre {', '.join(lacking)}, and --sources has too "
            "few for a confirmation split that are neither in the set nor near it; give more text of it, or "
            "raise --confirm-share (1 takes all of a text that is given for this alone)"
        )
    return _extended(attempt, pinned, corpus, {CONFIRM: found}, options, "")


def add_genres(
    attempt: Attempt, pinned: Output, corpus: Corpus, is_held: Bools, options: CurateOptions
) -> Result:
    """The pinned set and texts of the genres that it does not have, in each of its splits.

    Args:
        is_held: for each position of the corpus, whether the pinned set contains it.

    Raises:
        DataError: a new genre has too few documents for one of the splits.
    """
    splits = list(pinned.manifest.counts["documents"])
    new = new_genres(pinned, corpus)
    found = dict(zip(splits, _chosen(corpus, is_held, new, splits, options), strict=True))
    for split, positions in found.items():
        if lacking := sort_genres({*new} - corpus.genres_of(positions)):
            raise DataError(
                f"{pinned}: too few texts of genre {', '.join(lacking)} for the {split} split (about 15 are "
                f"needed for three); give more of it, or raise --{split}-share"
            )
    earlier = len({e.path.rpartition("-of-")[0][:-6] for e in pinned.entries("test-*.parquet")})
    return _extended(attempt, pinned, corpus, found, options, f"-added{earlier}")


def new_genres(pinned: Output, corpus: Corpus) -> list[str]:
    """The genres of the corpus that the pinned set's test split does not have."""
    have = pinned.manifest.counts["documents"]["test"]
    return sort_genres(corpus.genres_of(corpus.kept) - have.keys())


def _chosen(
    corpus: Corpus, is_held: Bools, genres: Iterable[str], splits: Sequence[str], options: CurateOptions
) -> list[Ints]:
    """The positions of each split, of these genres alone."""
    candidates, wanted = corpus.candidates, set(genres)
    codes = [code for code, name in enumerate(candidates.genres) if name in wanted]
    index = corpus.chosen

    def is_free(some: slice) -> Bools:
        return np.asarray(~is_held[corpus.kept[some]] & np.isin(candidates.genre[index[some]], codes))

    rows = numbers_where(is_free, len(index))
    sizes = [split_size(options, split) for split in splits]
    return [corpus.kept[held] for held in choose(corpus, rows, sizes, options.workers)]


def _extended(
    attempt: Attempt,
    pinned: Output,
    corpus: Corpus,
    positions: dict[str, Ints],
    options: CurateOptions,
    suffix: str,
) -> Result:
    """The files of the pinned set as they are, and new ones, whose names hold `suffix`."""
    for path in pinned.paths("*.parquet"):
        shutil.copyfile(path, attempt.path(path.name))
        attempt.add(path.name)
    new = write_splits(attempt, corpus, positions, options.shard_characters, options.workers, suffix=suffix)
    counts = {
        what: {**old, **{s: {**old.get(s, {}), **added} for s, added in new[what].items()}}
        for what, old in pinned.manifest.counts.items()
    }
    licenses = Counter(pinned.manifest.metadata.get("licenses", {}))
    licenses.update(corpus.licenses(corpus.copies.unique[np.concatenate(list(positions.values()))]))
    metadata = {**pinned.manifest.metadata, "licenses": dict(sorted(licenses.items()))}
    metadata["genres"] = sort_genres(counts["documents"]["test"])
    return Result(counts=counts, metadata=metadata)
