"""The store that commit 3328ac6 made (tests/data/store-3328ac6.sh), in a folder of the test's own."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

DATA = Path(__file__).parent / "data"
CHANNEL = "main"


def unpack(folder: Path) -> Path:
    """Its root, below `folder`."""
    with tarfile.open(DATA / "store-3328ac6.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def roll_back(root: Path) -> None:
    """Lay over it what a rollback by that commit's code wrote: a record, and pointers to the first model."""
    shutil.copytree(DATA / "rollback-3328ac6", root / "pointers" / CHANNEL, dirs_exist_ok=True)
