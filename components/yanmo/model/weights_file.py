"""Writes safetensors so that a full disk raises an `OSError` like any other, and does not look like a bug.

The library raises an error of its own, which has the system's error number only in its text, and needs memory
for all tensors at once. The functions without it write the same files and need it for one.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from yanmo.common.errors import naming
from yanmo.model.weights_check import StoredTensor

_NUMBER = re.compile(r"\(os error (\d+)\)")
_ALIGNED = 8
"""The header's length is a multiple of this."""
_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


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


def write_one_by_one(
    shapes: Mapping[str, Sequence[int]],
    path: Path,
    tensor_of: Callable[[str], Tensor],
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write tensors of one type, each made by `tensor_of` when it is written: memory need not hold two.

    The file is the one that `write_tensors` would write.
    """
    kind = next(name for name, each in _TYPES.items() if each == dtype)
    kinds = {name: (kind, shape, dtype.itemsize * math.prod(shape)) for name, shape in shapes.items()}
    with naming(path), path.open("wb") as file:
        for name in _begin(file, kinds):
            tensor = tensor_of(name).detach().to(dtype).contiguous().cpu()
            assert tuple(tensor.shape) == tuple(shapes[name])
            file.write(tensor.view(torch.uint8).numpy().data if tensor.numel() else b"")


def read_tensor(stored: StoredTensor) -> Tensor:
    """Return a tensor of a file, on the CPU, in its type.

    Raises:
        EOFError: the file became shorter.
    """
    data = bytearray(stored.bytes)
    with stored.file.open("rb") as file:
        file.seek(stored.begin)
        if file.readinto(data) < len(data):
            raise EOFError(f"{stored.file}: became shorter while it was read")
    return torch.frombuffer(data, dtype=_TYPES[stored.dtype]).view(stored.shape)


def _begin(file: BinaryIO, kinds: Mapping[str, tuple[str, Sequence[int], int]]) -> list[str]:
    """Write the header; returns the names in the order in which their bytes must follow.

    Args:
        kinds: type, shape and bytes of each tensor.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    names, at = sorted(kinds), 0
    for name in names:
        dtype, shape, size = kinds[name]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    file.write(len(text).to_bytes(8, "little") + text)
    return names
