"""A JSON object from a file that somebody else may have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.given_file import MIB, given_json, kind_of_json

MOST_BYTES = 16 * MIB


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        DataError: it holds none.
    """
    value = given_json(path, "a JSON object", most_bytes=MOST_BYTES)
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {kind_of_json(value)}; copy it again")
    return value
