"""Runs of characters that occur in held-out text, so that no augmented document brings one into train.

Curate removed every training document that shares a run of 13 Han characters with the evaluation set (of
modern text, by its share). Augmentation could bring such a run back: a training document with 于此 where a
held-out one has 于斯 is one synonym away. So augmented texts are checked once more; one that shares a run
stays a plain repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from yanmo.chinese.text_runs import Runs, compared, run_hashes
from yanmo.common.hash_set import distinct
from yanmo.formats.documents import read_documents
from yanmo.formats.records import TEXT_FORM

RUN = 13
"""Length of a run, Han characters: the default of curate's --overlap-characters; shorter runs are idioms."""


class HeldOut:
    """The runs of held-out documents."""

    def __init__(self, texts: Iterable[Sequence[str]], run: int = RUN, form: str = TEXT_FORM) -> None:
        """Args:
        texts: batches of texts; only the hashes of a batch are kept.
        run: length of a run, Han characters (in modern text units).
        form: text form of all texts.
        """
        self._form = form
        parts = [run_hashes(compared(batch, form), run)[0] for batch in texts]
        self._runs = Runs(run, distinct(np.concatenate([*parts, np.zeros(0, np.uint64)])))

    @classmethod
    def of_files(cls, paths: Iterable[Path], form: str) -> HeldOut:
        """Return the runs of the documents in these Parquet files."""
        return cls((read_documents(path, ("text",))["text"].to_pylist() for path in paths), form=form)

    def shared(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which of the texts share a run with a held-out document."""
        return self._runs.found_in(compared(texts, self._form))
