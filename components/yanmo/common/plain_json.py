"""JSON that somebody may have damaged: whatever is wrong with it is a `ValueError`."""

from __future__ import annotations

import json
from typing import Any


def json_value(data: str | bytes, **how: Any) -> Any:
    """Return the value in `data`, as by `json.loads`.

    Raises:
        ValueError: it is no JSON, or nested more deeply than anything that is written here.
    """
    try:
        return json.loads(data, **how)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
