"""The text that tokenizers are compared on: some to learn from, some held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from yanmo.common.errors import DataError
from yanmo.common.words import plural
from yanmo.store.output import Output


@dataclass
class SampleText:
    """Texts to learn from and texts to judge by."""

    learned: list[str] = field(default_factory=list)
    held_out: list[str] = field(default_factory=list)

    def limited(self, learned: int, held_out: int) -> SampleText:
        """Evenly spread documents of at most so many characters each.

        Raises:
            DataError: nothing is left of one of the two.
        """
        found = SampleText(_spread(self.learned, learned), _spread(self.held_out, held_out))
        if not found.learned or not found.held_out:
            raise DataError(
                f"--documents: {plural(len(found.learned), 'document')} to learn from, "
                f"{len(found.held_out)} to judge by: expected "
                "some of both; give more text"
            )
        return found


def _spread(texts: Sequence[str], characters: int) -> list[str]:
    total = sum(map(len, texts))
    if total <= characters:
        return list(texts)
    found, kept, passed = [], 0, 0
    for text in texts:
        passed += len(text)
        if kept + len(text) <= passed * characters / total:
            found.append(text)
            kept += len(text)
    return found


def of_output(output: Output) -> SampleText:
    """The train split of a documents output, and its valid split."""
    texts = {
        split: [
            text
            for path in output.paths(f"{split}-*.parquet")
            for text in pq.read_table(path, columns=["text"])["text"].to_pylist()
            if text
        ]
        for split in ("train", "valid")
    }
    return SampleText(texts["train"], texts["valid"])
