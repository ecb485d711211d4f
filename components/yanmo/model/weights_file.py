"""Writes safetensors so that a full disk raises an `OSError` like any other, and does not look like a bug.

The library raises an error of its own, which has the system's error number only in its text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

_NUMBER = re.compile(r"\(os error (\d+)\)")


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors to a file.

    Raises:
        OSError: the system refused, with its number: ENOSPC where the disk is full.
    """
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        found = _NUMBER.search(str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(path)) from error
