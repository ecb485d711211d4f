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

from yanmo.model.weights_check import StoredTensor

_NUMBER = re.compile(r"\(os error (\d+)\)")
_ALIGNED = 8
"""The header's length is a multiple of this."""
_AT_A_TIME = 1 << 24
"""Bytes."""
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


def join_tensors(tensors: Mapping[str, StoredTensor], path: Path) -> None:
    """Write tensors of other files, of one type all of them, to a file: their bytes as they are.

    The file is the one that `write_tensors` would write.
    """
    kinds = {name: (one.dtype, one.shape, one.bytes) for name, one in tensors.items()}
    with path.open("wb") as file:
        for name in _begin(file, kinds):
            _copy(tensors[name], file)


def write_one_by_one(
    shapes: Mapping[str, Sequence[int]], path: Path, tensor_of: Callable[[str], Tensor]
) -> None:
    """Write tensors in fp32 of which memory need not hold two: `tensor_of` makes each when it is written.

    The file is the one that `write_tensors` would write.
    """
    kinds = {name: ("F32", shape, 4 * math.prod(shape)) for name, shape in shapes.items()}
    with path.open("wb") as file:
        for name in _begin(file, kinds):
            tensor = tensor_of(name).detach().float().contiguous().cpu()
            assert tuple(tensor.shape) == tuple(shapes[name])
            file.write(tensor.numpy().data.cast("B"))


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


def _copy(tensor: StoredTensor, into: BinaryIO) -> None:
    with tensor.file.open("rb") as file:
        file.seek(tensor.begin)
        left = tensor.bytes
        while left:
            data = file.read(min(left, _AT_A_TIME))
            if not data:
                raise EOFError(f"{tensor.file}: became shorter while it was read")
            into.write(data)
            left -= len(data)
