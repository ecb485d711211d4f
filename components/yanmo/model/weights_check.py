"""Checks safetensors files without torch: names, shapes, and whether every weight is finite.

A model is checked before a training starts from it: weights that are not finite would end the training hours
later, with advice about learning rates. Files are mapped into memory and read once, a part at a time.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from yanmo.common.errors import DataError, naming
from yanmo.common.given_file import json_value

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
CONVERT = (
    "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, safe_serialization=True) of "
    "transformers, on a machine and from a source that you trust"
)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""How the names of pickled weights end."""
_EXPONENT = {
    "F64": ("<u8", 0x7FF0_0000_0000_0000),
    "F32": ("<u4", 0x7F80_0000),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
}
"""Type of a tensor -> the integer type of the same width, and the exponent bits: all of them are set in an
infinity or NaN, and only there."""
_DERIVED = re.compile(r"(?:.*\.)?rotary_emb\.(?:inv_freq|cos_cached|sin_cached)")
"""Tensors of older Llamas that follow from config.json's rope_theta: transformers reads none of them."""
_AT_A_TIME = 1 << 22
"""Weights that are read at a time."""
_AGAIN = "copy or download it again"


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in a safetensors file, and what it is."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    """First byte of the tensor, counted in the file."""
    bytes: int


def check_is_no_gguf(folder: Path) -> None:
    """Raise DataError where a folder holds a model for llama.cpp, and none in Hugging Face's layout."""
    found = sorted(path.name for path in folder.glob("*.gguf")) if folder.is_dir() else []
    if found and not (folder / "config.json").exists():
        raise DataError(
            f"{folder}: expected a model in Hugging Face's layout, found {found[0]}, which is for llama.cpp "
            "and Ollama; name the model that it was exported from, or export that --for transformers"
        )


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold a model: model.safetensors, else those of the index, else every safetensors
    file.

    Raises:
        DataError: there are none, one that the index names is missing, or the weights are pickles.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        names = sorted(set(_index(folder / INDEX).values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise DataError(f"{folder / INDEX}: names {', '.join(missing)}, not there; copy the model again")
        return [folder / name for name in names]
    found = sorted(folder.glob("*.safetensors"))
    pickles = sorted({path.name for end in PICKLES for path in folder.glob(f"*{end}")})
    if not found and pickles:
        raise DataError(
            f"{folder}: its weights are pickles ({', '.join(pickles)}), which can run any code when they are "
            f"read, and are not read here; convert them to safetensors by {CONVERT}"
        )
    if not found:
        raise DataError(f"{folder}: no {WEIGHTS}; copy the model again")
    return found


def _index(path: Path) -> dict[str, str]:
    try:
        found = json_value(path.read_text(encoding="utf-8"))["weight_map"]
        if found and all(_is_plain(name) for name in found.values()):
            return dict(found)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise DataError(
        f"{path}: expected an object with a weight_map of files in the same folder; copy the model again"
    )


def _is_plain(name: Any) -> bool:
    return isinstance(name, str) and name.endswith(".safetensors") and "/" not in name


def read_headers(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of a model by its name, but for those that follow from its config.json.

    Raises:
        DataError: a file is damaged or short, two files hold the same tensor, or none holds one that the
            index names.
    """
    found: dict[str, StoredTensor] = {}
    for path in weight_files(folder):
        for name, tensor in _header(path):
            if _DERIVED.fullmatch(name):
                continue
            if name in found:
                raise DataError(
                    f"{path}: holds {name}, as {found[name].file.name} does too; keep one of them"
                )
            found[name] = tensor
    index = folder / INDEX
    if index.is_file() and not (folder / WEIGHTS).is_file():
        absent = sorted(n for n in _index(index).keys() - found.keys() if not _DERIVED.fullmatch(n))
        if absent:
            raise DataError(
                f"{index}: names {absent[0]}, which no file holds ({len(absent)} in all); {_AGAIN}"
            )
    return found


def num_weights(folder: Path) -> int:
    """Parameters of the model in a folder."""
    return sum(math.prod(one.shape) for one in read_headers(folder).values())


def _header(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    """Yield the tensors in the order of their bytes; the library checks them, and says not where.

    It takes a list of the three values in the place of an object, too, which no program writes.
    """
    with naming(path):
        try:
            with safe_open(path, "np"):
                pass
        except SafetensorError as error:
            raise DataError(f"{path}: not a readable safetensors file: {error}; {_AGAIN}") from error
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    if not all(isinstance(value, dict) for value in header.values()):
        raise DataError(f"{path}: not a readable safetensors file: its header names no fields; {_AGAIN}")
    for name, value in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = value["data_offsets"]
        yield name, StoredTensor(path, value["dtype"], tuple(value["shape"]), 8 + length + begin, end - begin)


def check_weights(folder: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> None:
    """Check that a model's tensors are complete and that every weight is finite.

    Args:
        shapes: the tensors' shapes by name, as config.json implies them; None does not check them.

    Raises:
        DataError: names the file, the tensor, what was expected and what was found.
    """
    found = read_headers(folder)
    if shapes is not None:
        _check_shapes(folder, found, shapes)
    for name, tensor in found.items():
        where = f"{tensor.file}: {name}"
        if tensor.dtype not in _EXPONENT:
            raise DataError(
                f"{where}: expected weights of type {', '.join(_EXPONENT)}, found {tensor.dtype}; a "
                "quantized model has to be converted to bf16 first"
            )
        word, mask = _EXPONENT[tensor.dtype]
        wrong = _not_finite(tensor, word, mask)
        if wrong:
            raise DataError(
                f"{where}: {wrong} of {math.prod(tensor.shape)} weights are no finite numbers; its training "
                "diverged, or the file is damaged: take an earlier state of the model, or copy it again"
            )


def _check_shapes(
    folder: Path, found: Mapping[str, StoredTensor], shapes: Mapping[str, Sequence[int]]
) -> None:
    asked = f"does not fit {folder / 'config.json'}"
    for name in sorted(shapes.keys() | found.keys()):
        if name not in found:
            raise DataError(f"{folder}: {asked}: no file holds {name}; copy the model again")
        if name not in shapes:
            raise DataError(
                f"{found[name].file}: {asked}: holds {name}, which no such model has; copy the model again"
            )
        if tuple(shapes[name]) != found[name].shape:
            raise DataError(
                f"{found[name].file}: {asked}: {name} has shape {list(found[name].shape)}, expected "
                f"{list(shapes[name])}"
            )


def _not_finite(tensor: StoredTensor, word: str, mask: int) -> int:
    number = math.prod(tensor.shape)
    if not number:
        return 0
    # As bytes first: a header's length need not be a multiple of a word.
    data = np.memmap(tensor.file, np.uint8, "r", tensor.begin, (tensor.bytes,))
    step = _AT_A_TIME * np.dtype(word).itemsize
    parts = (np.array(data[i : i + step]).view(word) for i in range(0, tensor.bytes, step))
    return sum(int(np.count_nonzero((part & mask) == mask)) for part in parts)
