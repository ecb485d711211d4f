"""JSON of a file that somebody may have damaged."""

from __future__ import annotations

import pytest

from yanmo.common.plain_json import json_value


@pytest.mark.parametrize("text", ["", "x", "[" * 100_000, '{"a":' * 100_000, "\ufeff{}"])
def test_whatever_is_wrong_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        json_value(text)
