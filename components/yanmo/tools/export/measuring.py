"""What 8-bit integers lose: bits per character on the evaluation set, beside those of fp32.

Texts are encoded by the model's own tokenizer.json and scored as `evaluate` scores them: half a context of
overlap, no tag, the end of the text counted. In a chat, which `evaluate` scores by its answers, all is
counted here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from yanmo.common.errors import DataError
from yanmo.common.logs import Progress
from yanmo.formats.documents import read_documents
from yanmo.formats.records import num_characters
from yanmo.formats.round_trip import open_tokenizer
from yanmo.model.decoder import Decoder
from yanmo.model.hf_export import load
from yanmo.model.scoring import document_bits
from yanmo.store.output import Output
from yanmo.tools.export.int8 import round_layers
from yanmo.tools.export.origin import Origin

log = logging.getLogger(__name__)
_AT_ONCE = 64
"""Documents between two signs of life."""


@dataclass(frozen=True)
class Loss:
    """Bits per character of the same texts by the weights as they are and by 8-bit integers."""

    genres: dict[str, tuple[float, float]]
    """Genre -> before, after."""
    documents: int
    characters: int
    where: str

    @property
    def mean(self) -> tuple[float, float]:
        """Over the genres."""
        before, after = zip(*self.genres.values(), strict=True)
        return float(np.mean(before)), float(np.mean(after))


def evaluation_set_of(origin: Origin) -> Output | None:
    """The evaluation set that a model was measured on, else that which its text keeps apart."""
    outputs = [origin.evaluation.output] if origin.evaluation else []
    outputs += [one for learned in origin.learned for one in learned.made_of]
    for output in outputs:
        try:
            found = output.input("evaluation_set")
        except DataError as error:
            log.warning("%s: its evaluation set cannot be read: %s", output, error)
            continue
        if found is not None:
            return found
    return None


def loss_of_int8(
    folder: Path, evaluation_set: Output, dtype: torch.dtype, most_characters: int, split: str = "test"
) -> Loss:
    """Measure the model in `folder` on the first documents of each genre, evenly many characters of each.

    Raises:
        DataError: the set has no such split, or holds no text.
    """
    texts = _texts(evaluation_set, split, most_characters)
    if not texts:
        raise DataError(
            f"{evaluation_set}: its split {split!r} holds no text; export with --measure-characters 0"
        )
    model, symbols = load(folder)
    tokenizer = open_tokenizer(folder / "tokenizer.json")
    encoded = tokenizer.encode_batch([text for _, text in texts], add_special_tokens=False)
    ids = [np.array([symbols.bos, *each.ids, symbols.eos]) for each in encoded]
    before = list(_bits(model, ids, "measured fp32"))
    after = list(_bits(round_layers(model, dtype), ids, "measured int8"))
    found: dict[str, list[float]] = {}
    for (genre, text), *bits in zip(texts, before, after, strict=True):
        sums = found.setdefault(genre, [0.0, 0.0, 0.0])
        for i, more in enumerate((*bits, num_characters(text))):
            sums[i] += more
    genres = {genre: (a / n, b / n) for genre, (a, b, n) in found.items()}
    characters = sum(num_characters(text) for _, text in texts)
    return Loss(genres, len(texts), characters, f"{evaluation_set}, split {split}")


def _bits(model: Decoder, documents: Sequence[np.ndarray], what: str) -> Iterator[float]:
    progress = Progress(log, what, len(documents), unit="documents")
    threads = torch.get_num_threads()
    for first in range(0, len(documents), _AT_ONCE):
        some = documents[first : first + _AT_ONCE]
        yield from document_bits(model, some, threads=threads).tolist()
        progress.add(len(some))


def _texts(evaluation_set: Output, split: str, most: int) -> list[tuple[str, str]]:
    """Genre and text of the documents that are measured, by genre and id."""
    rows: dict[str, list[tuple[str, str]]] = {}
    for entry in evaluation_set.entries(f"{split}-*.parquet"):
        table = read_documents(evaluation_set.path(entry.path), ("id", "genre", "text"))
        for row in table.to_pylist():
            if num_characters(row["text"]):
                rows.setdefault(row["genre"], []).append((row["id"], row["text"]))
    found = []
    for genre in sorted(rows):
        left = most // len(rows)
        for _, text in sorted(rows[genre]):
            if left <= 0:
                break
            left -= num_characters(text)
            found.append((genre, text))
    return found
