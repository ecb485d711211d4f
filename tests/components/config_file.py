"""A text as the file that --config names."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

_FOLDER = tempfile.TemporaryDirectory(prefix="yanmo-config-")
_NUMBERS = itertools.count()


def written(text: str) -> str:
    """The path of a new file that holds `text`; it goes with the process."""
    path = Path(_FOLDER.name) / f"{next(_NUMBERS)}.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return str(path)
