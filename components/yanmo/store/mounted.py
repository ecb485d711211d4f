"""Files of mounted Secrets: how a pod learns what is no option of its command.

They are read at every use, so that a rotated Secret is seen.
"""

from __future__ import annotations

import os
from pathlib import Path

SECRET_FOLDERS = ("/etc/yanmo/store", "/etc/yanmo/mlpipeline-minio-artifact")
_MAX_SECRET_BYTES = 16384


def secret_folders() -> list[Path]:
    """Folders of mounted Secrets, most specific first; they need not exist."""
    given = os.environ.get("YANMO_S3_SECRET_DIR")
    return [Path(given)] if given else [Path(folder) for folder in SECRET_FOLDERS]


def mounted(*names: str) -> str:
    """Return the value of the first mounted secret file of one of these names; "" where there is none."""
    for folder in secret_folders():
        value = value_in(folder, names)
        if value:
            return value
    return ""


def value_in(folder: Path, names: tuple[str, ...]) -> str:
    """Return the value of the first file of a folder that has one of these names; "" where there is none."""
    for name in names:
        try:
            with (folder / name).open(encoding="utf-8") as file:
                return file.read(_MAX_SECRET_BYTES).strip()
        except (FileNotFoundError, NotADirectoryError):
            continue
    return ""
