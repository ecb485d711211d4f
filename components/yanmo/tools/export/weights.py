"""Copies a model's weights from safetensors to safetensors, a part at a time, as another type.

No model is built: a part of at most 5 GB is in memory, whatever the model's size. Parts are those of
transformers: one file, or several and an index.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open

from yanmo.common.logs import Progress
from yanmo.model.weights_check import INDEX, WEIGHTS, StoredTensor
from yanmo.model.weights_file import write_tensors

PART_BYTES = 5_000_000_000
"""Most bytes in a file, as transformers' `save_pretrained` has it."""


def copy_weights(
    stored: Mapping[str, StoredTensor],
    folder: Path,
    dtype: torch.dtype,
    progress: Progress,
    part_bytes: int = PART_BYTES,
) -> list[str]:
    """Write every tensor as `dtype` into `folder`; the names of the files.

    Raises:
        OSError: the disk is full, among others.
    """
    parts: list[Path] = []
    where: dict[str, int] = {}
    total = 0
    for part in _parts(stored, dtype, progress, part_bytes):
        parts.append(folder / f".part-{len(parts)}")
        write_tensors(part, parts[-1], metadata={"format": "pt"})
        where |= dict.fromkeys(part, len(parts) - 1)
        total += sum(map(_bytes, part.values()))
    if len(parts) == 1:
        parts[0].rename(folder / WEIGHTS)
        return [WEIGHTS]
    names = [f"model-{i:05}-of-{len(parts):05}.safetensors" for i in range(1, len(parts) + 1)]
    for path, name in zip(parts, names, strict=True):
        path.rename(folder / name)
    index = {"metadata": {"total_size": total}, "weight_map": {n: names[i] for n, i in sorted(where.items())}}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return [*names, INDEX]


def _parts(
    stored: Mapping[str, StoredTensor], dtype: torch.dtype, progress: Progress, part_bytes: int
) -> Iterator[dict[str, torch.Tensor]]:
    part: dict[str, torch.Tensor] = {}
    size = 0
    for name in sorted(stored):
        with safe_open(stored[name].file, framework="pt") as file:
            tensor = file.get_tensor(name).to(dtype).contiguous()
        added = _bytes(tensor)
        if part and size + added > part_bytes:
            yield part
            part, size = {}, 0
        part[name] = tensor
        size += added
        progress.add(stored[name].bytes)
    yield part


def _bytes(tensor: torch.Tensor) -> int:
    return math.prod(tensor.shape) * tensor.element_size()
