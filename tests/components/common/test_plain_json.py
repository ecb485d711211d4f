"""JSON of a file that somebody may have damaged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yanmo.common.plain_json import json_value

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_what_was_written_comes_back(value: object) -> None:
    assert json_value(json.dumps(value)) == json_value(json.dumps(value).encode()) == value


@pytest.mark.parametrize("text", ["", "x", "[" * 100_000, '{"a":' * 100_000, "\ufeff{}"])
def test_whatever_is_wrong_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        json_value(text)
