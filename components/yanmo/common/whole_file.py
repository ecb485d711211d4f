"""A file that a person asked for (`--reference-out FILE`): there whole, or as it was before."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from yanmo.common.errors import naming


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path`, which holds what it held before where that fails (a full disk, Ctrl-C).

    A link is followed. What is no plain file (a pipe, a terminal) is written to as it is, as is a file in a
    folder where this user may make no other.

    Raises:
        OSError: it names the file.
    """
    target = Path(os.path.realpath(path))
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
        with naming(path):
            path.write_text(text, encoding="utf-8", newline="")
        return
    temporary = target.with_name(f".yanmo-{uuid.uuid4().hex}")
    try:
        with naming(path):
            temporary.write_text(text, encoding="utf-8", newline="")
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
