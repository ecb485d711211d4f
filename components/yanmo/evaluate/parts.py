"""Scores written down in parts as they are made, so that a killed evaluation goes on where it was.

A part is the bits of some hundred windows: a JSON file in the work folder of the run's key, written whole or
not at all, that names the plan it belongs to and the digest of its figures. On a new start each is read and
checked; one that is damaged, or of another plan, is made again. A far store gets them as they come.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from yanmo.common.store.lease import Lease
from yanmo.common.store.work_folder import WorkFolder

log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]


class Parts:
    """The parts of one run's scores on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """The files that are there, in order."""
        return sorted(path.name for path in self.folder.glob("bits-*.json"))

    def read(self, number: int, plan: str, count: int) -> Floats | None:
        """The (count, 2) figures of a part; None where it is absent, damaged, or of another plan."""
        path = self._path(number)
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            bits = np.array(value["bits"], np.float64)
            if value["plan"] != plan or bits.shape != (count, 2) or value["sha256"] != _digest(bits):
                raise ValueError("it does not hold what it says, or belongs to another plan")
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError) as error:
            log.warning("%s: not used (%s); it is made again", path, error)
            return None
        return bits

    def write(self, number: int, plan: str, bits: Floats) -> None:
        """Keep the figures of a part."""
        path = self._path(number)
        temporary = path.with_suffix(".tmp")
        value = {"plan": plan, "sha256": _digest(bits), "bits": bits.tolist()}
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def clear(self) -> None:
        """Forget all parts."""
        for name in self.names():
            (self.folder / name).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"bits-{number:05d}.json"


class KeptParts(Parts):
    """Parts in the work folder of a run, and in its store where that is far."""

    def __init__(self, work: WorkFolder, lease: Lease, *, anew: bool = False) -> None:
        """Take up what an earlier run of this key left; `anew` drops it."""
        super().__init__(work.path)
        self._work, self._lease = work, lease
        if anew:
            self.clear()
        else:
            work.restore(_label(self.names()))

    def write(self, number: int, plan: str, bits: Floats) -> None:
        super().write(number, plan, bits)
        names = self.names()
        self._work.save(_label(names), names, self._lease)

    def clear(self) -> None:
        super().clear()
        self._work.forget()


def _label(names: Sequence[str]) -> str:
    """States sort by how many parts they hold."""
    return f"{len(names):06d}" if names else ""


def _digest(bits: Floats) -> str:
    return hashlib.sha256(bits.astype("<f8").tobytes()).hexdigest()
