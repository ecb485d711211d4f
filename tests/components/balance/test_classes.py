from __future__ import annotations

import pyarrow as pa
import pytest

from yanmo.balance.classes import columns_of, joined, values_by_part

ROWS = pa.table(
    {
        "genre": ["诗", "文"],
        "author": ["李白", ""],
        "text": ["床前明月光，疑是地上霜。\n举头望明月，低头思故乡。", "三人行，必有我师焉。"],
        "labels": pa.array([[("dynasty", "唐")], []], pa.map_(pa.string(), pa.string())),
    }
)


@pytest.mark.parametrize(
    ("by", "classes"),
    [
        ("genre", ["诗", "文"]),
        ("author", ["李白", "-"]),
        ("dynasty", ["唐", "-"]),
        ("genre+dynasty", ["诗/唐", "文/-"]),
        ("genre + dynasty", ["诗/唐", "文/-"]),
    ],
)
def test_a_class_is_the_value_of_any_label(by: str, classes: list[str]) -> None:
    assert joined(values_by_part(ROWS.select(columns_of(by)), by)) == classes
