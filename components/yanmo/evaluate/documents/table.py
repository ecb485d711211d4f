"""How an evaluation is written down: per document in Parquet, per genre in a log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yanmo.common.aligned_table import short_table
from yanmo.evaluate.documents.reading import Document
from yanmo.formats.records import EVALUATION, write_parquet
from yanmo.store.commit import Attempt

log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]


def evaluation_table(
    documents: Sequence[Document],
    split: str,
    tokens: npt.NDArray[np.int32],
    bits: Floats,
    tagged: Floats | None,
) -> pa.Table:
    """The scores of `documents` in schema `evaluation`; NaN in `tagged` becomes null."""
    columns = {
        "id": [d.id for d in documents],
        "genre": [d.genre for d in documents],
        "split": [split] * len(documents),
        "source": [d.source for d in documents],
        "characters": [d.characters for d in documents],
        "tokens": tokens,
        "bits": bits,
        "bits_with_tag": pa.array(tagged, pa.float64(), from_pandas=True) if tagged is not None else None,
        "group": [d.group or None for d in documents],
    }
    arrays = [
        pa.nulls(len(documents), field.type)
        if columns[field.name] is None
        else pa.array(columns[field.name], field.type)
        for field in EVALUATION
    ]
    return pa.Table.from_arrays(arrays, schema=EVALUATION)


def write_documents(attempt: Attempt, prefix: str, table: pa.Table, form: str) -> None:
    """Write `<prefix>-00000-of-00001.parquet`: scores of text in `form`."""
    name = f"{prefix}-00000-of-00001.parquet"
    metadata = {**(table.schema.metadata or {}), b"yanmo.text_form": form}
    write_parquet(table.replace_schema_metadata(metadata), attempt.path(name))
    attempt.add(name)


def log_table(summary: Mapping[str, Any], baselines: Mapping[str, Any] | None) -> None:
    """Log bits per character, genres x (model, with genre tag, each baseline)."""
    others = list((baselines or {"baselines": {}})["baselines"].values())
    rows = [["bits per character", "model", "with genre tag", *(other["title"] for other in others)]]
    for genre in summary["genres"]:
        rows.append([genre, *_cells([part["genres"].get(genre, {}) for part in (summary, *others)])])
    # A mean over fewer genres (baselines leave chats out) cannot be compared with the mean of all.
    means = [part["mean"] if part["genres"].keys() >= summary["genres"].keys() else {} for part in others]
    rows.append(["mean", *_cells([summary["mean"], *means])])
    for line in short_table(rows):
        log.info("%s", line)


def _cells(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The model's bits without and with genre tag, then the others'."""
    model, *others = parts
    cells = [model.get("bits_per_character"), model.get("with_tag")]
    cells += [other.get("bits_per_character") for other in others]
    return ["-" if cell is None else f"{cell:.3f}" for cell in cells]
