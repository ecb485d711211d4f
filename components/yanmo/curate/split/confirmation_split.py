"""The third held-out split, on which promotions are confirmed, and how it is added to a pinned set.

Every night uses the test split, so some night will be lucky on it. The confirmation split is scored each
time too, but `promote` reads the result only when everything else speaks for a new champion. It is filled
after test and valid, so that those two are the same with it and without. It has half the size of test:
the spread of a gain is then 1.4 times as large, and the cost half.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from yanmo.common.errors import DataError
from yanmo.curate.config import CurateOptions
from yanmo.curate.corpus import Corpus
from yanmo.curate.document_files import count_licenses, write_splits
from yanmo.curate.plan import Ints32, SplitSize, hold_out
from yanmo.curate.tally import sort_genres
from yanmo.formats.records import CONFIRM
from yanmo.store.commit import Attempt, Result
from yanmo.store.output import Output

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

WITHOUT = (
    "`yanmo promote` then reports first that a promotion is not confirmed, and follows its option "
    "--without-confirmation; `yanmo curate --add-confirmation` adds the split later, from more text"
)
"""What happens with a set without this split."""


def wants_confirmation(options: CurateOptions) -> bool:
    """Whether the options ask for a confirmation split."""
    return bool(options.confirm_characters and options.confirm_share)


def split_size(options: CurateOptions, split: str) -> SplitSize:
    """Size of `split`, per genre."""
    return SplitSize(
        characters=getattr(options, f"{split}_characters"),
        share=getattr(options, f"{split}_share"),
        min_documents=options.min_split_documents,
    )


def what_lacks(genre: Ints32, characters: Ints32, splits: Mapping[str, Ints], size: SplitSize) -> str:
    """Why a text is too small for the three `splits`, in words; "" if it is not.

    Every genre of test must be in it, as what is confirmed is a mean over genres. And if the least number
    of documents would be more than twice the split's share of the whole text, training needs them more: that
    is below about 100 documents per genre by default.
    """
    missing = np.setdiff1d(genre[splits["test"]], genre[splits[CONFIRM]])
    if len(missing):
        return f"{len(missing)} genre(s) of the test split have too few documents for one"
    held, whole = (int(characters[chosen].sum()) for chosen in (splits[CONFIRM], slice(None)))
    if held > 2 * size.share * whole:
        return (
            f"the text is too small for three: {size.min_documents} documents of each genre are "
            f"{held:,} of {whole:,} characters, more than twice --confirm-share {size.share:g}"
        )
    return ""


def build_extended_set(
    attempt: Attempt, pinned: Output, corpus: Corpus, is_held: Bools, options: CurateOptions
) -> Result:
    """The files of the pinned set, unchanged, and a confirmation split chosen from `corpus`.

    Args:
        is_held: for each position of the corpus, whether the pinned set contains it.

    Raises:
        DataError: a genre of the test split has no document left.
    """
    for path in pinned.paths("*.parquet"):
        shutil.copyfile(path, attempt.path(path.name))
        attempt.add(path.name)
    positions = _chosen(pinned, corpus, corpus.kept[~is_held[corpus.kept]], options)
    new = write_splits(attempt, corpus, {CONFIRM: positions}, options.shard_characters, options.workers)
    before = pinned.manifest.counts
    licenses = Counter(pinned.manifest.metadata.get("licenses", {}))
    licenses.update(count_licenses(corpus, positions))
    metadata = {**pinned.manifest.metadata, "licenses": dict(sorted(licenses.items()))}
    return Result(counts={what: {**before[what], **new[what]} for what in before}, metadata=metadata)


def _chosen(pinned: Output, corpus: Corpus, free: Ints, options: CurateOptions) -> Ints:
    """The positions of the new split, for the genres of the test split."""
    wanted: dict[str, int] = pinned.manifest.counts["documents"]["test"]
    candidates = corpus.candidates
    codes = [code for code, name in enumerate(candidates.genres) if name in wanted]
    position_of_kept = np.flatnonzero(np.isin(corpus.kept, free))
    genre = candidates.genre[corpus.chosen][position_of_kept]
    mine = np.isin(genre, codes)
    rows = position_of_kept[mine]
    chosen = corpus.chosen[rows]
    (found,) = hold_out(
        candidates.genre[chosen],
        candidates.characters[chosen],
        corpus.groups()[rows],
        [split_size(options, CONFIRM)],
    )
    have = {candidates.genres[code] for code in np.unique(candidates.genre[chosen[found]]).tolist()}
    lacking = sort_genres(wanted.keys() - have)
    if lacking:
        raise DataError(
            f"{pinned}: its test split has texts of genre {', '.join(lacking)}, and --sources has too "
            "few for a confirmation split that are neither in the set nor near it; give more text of it, or "
            "raise --confirm-share (1 takes all of a text that is given for this alone)"
        )
    return corpus.kept[rows[found]]
