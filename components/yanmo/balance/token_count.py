"""How many tokens of a document training predicts: those of its text, and `<|eos|>`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from yanmo.formats.round_trip import open_tokenizer

_BATCH = 256


class TokenCount:
    """Counts tokens with a tokenizer.json; without one, estimates one token per character and line break.

    The estimate is near what a tokenizer with mostly single characters gives: the demo's, with 8,192 tokens,
    gives 1.006 tokens per character (from the log of `yanmo tokenize`).
    """

    def __init__(self, tokenizer: Path | None = None) -> None:
        self._tokenizer: Any = None
        if tokenizer is not None:
            self._tokenizer = open_tokenizer(tokenizer)

    def of(self, texts: pa.ChunkedArray | Sequence[str]) -> npt.NDArray[np.int32]:
        """Predicted tokens of each text."""
        if self._tokenizer is None:
            array = texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([texts], pa.string())
            return np.asarray(pc.utf8_length(array).to_numpy(), dtype=np.int32) + np.int32(1)
        plain = texts.to_pylist() if isinstance(texts, pa.ChunkedArray) else list(texts)
        found: list[int] = []
        for start in range(0, len(plain), _BATCH):
            batch = plain[start : start + _BATCH]
            found += [
                len(e.ids) + 1 for e in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            ]
        return np.array(found, np.int32)


token_count = functools.lru_cache(maxsize=1)(TokenCount)
"""The `TokenCount` of this process: a tokenizer is read once, for all of its tasks."""
