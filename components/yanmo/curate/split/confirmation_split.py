"""The third held-out split, on which promotions are confirmed.

Every night uses the test split, so some night will be lucky on it. The confirmation split is scored each
time too, but `promote` reads the result only when everything else speaks for a new champion. It is filled
after test and valid, so that those two are the same with it and without. It has half the size of test:
the spread of a gain is then 1.4 times as large, and the cost half.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.curate.config import CurateOptions
from yanmo.curate.split.hold_out import Ints32, SplitSize
from yanmo.formats.records import CONFIRM

Ints = npt.NDArray[np.signedinteger[Any]]
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
