"""A small store of two champions (tests/data/store-3328ac6.sh), in a folder of the test's own."""

from __future__ import annotations

import tarfile
from pathlib import Path

DATA = Path(__file__).parent / "data"


def unpack(folder: Path) -> Path:
    """Its root, below `folder`."""
    with tarfile.open(DATA / "store-3328ac6.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"
