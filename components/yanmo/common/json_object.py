"""A JSON object from a file that somebody else may have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        DataError: it holds none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not readable as JSON ({error}); copy it again") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(value).__name__}; copy it again")
    return value
