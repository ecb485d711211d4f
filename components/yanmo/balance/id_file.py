"""The ids of all documents in a temporary file: 32 bytes each are more than all else that is kept of them."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from yanmo.common.errors import naming
from yanmo.common.freed_memory import let_go

Ids = npt.NDArray[np.uint8]
"""(n, 32): document ids as bytes, not as 64 hexadecimal digits."""
_BYTES = 32


class IdFile:
    """Ids that are added in order and read by position. The file has no name and ends with the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it is read as long as this object lives
        self._pages: mmap.mmap | None = None

    @classmethod
    def of(cls, ids: Ids) -> IdFile:
        """A file of these ids."""
        made = cls()
        made.add(ids)
        return made

    def add(self, ids: Ids) -> None:
        """Write some more.

        Raises:
            OSError: with the name of the temporary folder, as where its disk is full.
        """
        self._pages = None
        with naming(Path(tempfile.gettempdir())):
            self._file.write(np.ascontiguousarray(ids).data)
            self._file.flush()

    def at(self, positions: npt.NDArray[np.signedinteger]) -> Ids:
        """The ids at some positions, in that order."""
        if not len(positions):
            return np.empty((0, _BYTES), np.uint8)
        if self._pages is None:
            self._pages = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        found: Ids = np.frombuffer(self._pages, np.uint8).reshape(-1, _BYTES)[positions]
        let_go(self._pages)
        return found
