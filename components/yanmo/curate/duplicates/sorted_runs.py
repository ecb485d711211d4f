"""Numbers that are too many for memory: sorted runs on disk, read back as one, each number once.

A run is a file of raw unsigned 64-bit integers that rise. However many there are, what is held is a block of
each run. The alternative, one array of all, took 24 bytes of memory per number while the next came to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.disk_arrays import slices
from yanmo.common.errors import naming
from yanmo.common.hash_set import distinct

Numbers = npt.NDArray[np.uint64]

AT_A_TIME = 1 << 20
"""Numbers that are held together by default: 8 MB."""


def write_array(path: Path, values: npt.NDArray[Any], mode: str = "wb") -> None:
    """Write the bytes of `values`, which `read_array` reads.

    Raises:
        OSError: with its number and the file's name, as of a full disk; `tofile` gives neither.
    """
    with naming(path), path.open(mode) as file:
        for some in slices(len(values)):
            file.write(np.ascontiguousarray(values[some]).view(np.uint8).data)


def read_array(path: Path, dtype: Any, start: int = 0, count: int = -1) -> npt.NDArray[Any]:
    """`count` values from the `start`-th on; all of them by default."""
    return np.fromfile(path, dtype, count, offset=start * np.dtype(dtype).itemsize)


def merged(runs: Sequence[Path], at_a_time: int = AT_A_TIME) -> Iterator[Numbers]:
    """Yield the numbers of all runs, rising, each once, in blocks of at most about `at_a_time`."""
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in runs]
        each = max(1, at_a_time // max(1, len(files)))
        held = [_read(file, each) for file in files]
        while any(map(len, held)):
            # Whatever a run has not shown yet is above its last number held, and so above this one.
            limit = min(numbers[-1] for numbers in held if len(numbers))
            ends = [int(np.searchsorted(numbers, limit, side="right")) for numbers in held]
            yield distinct(np.concatenate([numbers[:end] for numbers, end in zip(held, ends, strict=True)]))
            held = [
                numbers[end:] if end < len(numbers) else _read(file, each)
                for numbers, end, file in zip(held, ends, files, strict=True)
            ]


def _read(file: BufferedIOBase, count: int) -> Numbers:
    return np.frombuffer(file.read(count * 8), np.uint64)
