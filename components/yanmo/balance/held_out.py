"""Runs of characters that stand in held-out text, so that no augmented document brings one into train.

Curate took every training document out that shares a run of 13 Han characters with the evaluation set.
Augmentation could bring one back: a train document that says 于此 where a held-out one says 于斯 is one
synonym away. So augmented texts are looked up once more; one that shares a run stays a plain repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from yanmo.common.documents import read_documents

RUN = 13
"""Han characters; curate's default, and knowledge of what quotations are: shorter runs are idioms."""
_BASE = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SEPARATOR = 0


class HeldOut:
    """The runs of held-out documents."""

    def __init__(self, texts: Iterable[Sequence[str]], run: int = RUN) -> None:
        """Args:
        texts: batches of texts; each is hashed and let go.
        """
        self._run = run
        parts = [run_hashes(batch, run)[0] for batch in texts]
        self._known = np.unique(np.concatenate([*parts, np.zeros(0, np.uint64)]))

    @classmethod
    def of_files(cls, paths: Iterable[Path]) -> HeldOut:
        """The runs of the documents in these files."""
        return cls(read_documents(path, ("text",))["text"].to_pylist() for path in paths)

    def shared(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which of the texts share a run with a held-out document."""
        hashes, owner = run_hashes(texts, self._run)
        found = np.zeros(len(texts), bool)
        if len(self._known) and len(hashes):
            at = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
            found[owner[self._known[at] == hashes]] = True
        return found


def run_hashes(texts: Sequence[str], run: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """64-bit hashes of all runs of `run` Han characters, and the index of the text of each."""
    codes = np.frombuffer("\0".join([*texts, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
    ends = codes == _SEPARATOR
    owner = np.cumsum(ends) - ends
    han = ((codes >= 0x3400) & (codes < 0xA000)) | ((codes >= 0xF900) & (codes < 0xFB00)) | (codes >= 0x20000)
    codes, owner = codes[han].astype(np.uint64), owner[han]
    count = len(codes) - run + 1
    if count <= 0:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    hashes = np.zeros(count, np.uint64)
    for offset in range(run):
        hashes *= _BASE
        hashes += codes[offset : offset + count]
    hashes ^= hashes >> np.uint64(30)
    hashes *= _MIX
    hashes ^= hashes >> np.uint64(27)
    inside = owner[:count] == owner[run - 1 :]
    return hashes[inside], owner[:count][inside]
