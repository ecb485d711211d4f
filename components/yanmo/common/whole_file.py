"""Files that a person asked for: there whole, or as they were before.

What is in a store has its own ways (store/file_store.py); this is for `--reference-out FILE`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path

from yanmo.common.errors import naming


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path`, which holds what it held before where that fails (a full disk, Ctrl-C).

    A link is followed, and the mode of a file that is there is kept. What is no plain file (a pipe, a
    terminal) is written to as it is, as is a file in a folder where this user may make no other.

    Raises:
        OSError: it names `path`.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink():  # to itself, in the end
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
        with naming(path):
            path.write_text(text, encoding="utf-8", newline="")
        return
    temporary = target.with_name(f".yanmo-{uuid.uuid4().hex}")
    try:
        with temporary.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
