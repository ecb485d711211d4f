"""Rows of mapped files, taken by workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yanmo.curate.mapped_texts import mapped_rows
from yanmo.formats.records import write_parquet


def written(folder: Path, sizes: list[tuple[int, bool]]) -> list[Path]:
    """Mapped files of so many rows, those of chats with `loss_spans`."""
    paths = []
    for number, (rows, has_chats) in enumerate(sizes):
        table = pa.table(
            {"id": [f"{number}-{i}" for i in range(rows)], "text": ["文" * i for i in range(rows)]}
        )
        if has_chats:
            table = table.append_column("loss_spans", pa.array([[[0, i]] for i in range(rows)]))
        paths.append(folder / f"mapped-{number}.parquet")
        write_parquet(table, paths[-1])
    return paths


@pytest.mark.parametrize("workers", [1, 2])
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_come_in_the_order_asked_for_from_any_files(
    tmp_path: Path, workers: int, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12))
    paths = written(tmp_path, sizes)
    every = [(file, row) for file, (rows, _) in enumerate(sizes) for row in range(rows)]
    places = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=40))
    file, row = np.array(places, np.int64).T
    found = mapped_rows(paths, file, row, ("text", "id", "loss_spans"), workers)
    assert found["id"].to_pylist() == [f"{f}-{r}" for f, r in places]
    assert found["text"].to_pylist() == ["文" * r for _, r in places]
    chats = {f for f, _ in places if sizes[f][1]}
    assert ("loss_spans" in found.column_names) == bool(chats)
    if chats:
        assert found["loss_spans"].to_pylist() == [[[0, r]] if f in chats else None for f, r in places]
