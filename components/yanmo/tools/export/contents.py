"""The files of an exported model, written into a folder that nobody sees yet."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from yanmo.common.given_file import read_object
from yanmo.common.logs import Progress
from yanmo.formats.chat_tokens import END, OF_A_DECODER, has_marks
from yanmo.formats.round_trip import tokenizer_of
from yanmo.model.decoder import DecoderConfig
from yanmo.model.hf_export import Symbols, ends_of, generation_config, read_config, shapes_of
from yanmo.model.weights_check import WEIGHTS, check_weights, read_headers
from yanmo.model.weights_file import read_tensor, write_one_by_one

log = logging.getLogger(__name__)
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_COPIED = (
    "special_tokens_map.json",
    "chat_template.jinja",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "genres.json",
)
_BOS = "<|bos|>"
_LEFT_OUT = ("auto_map", "_name_or_path")
"""Of a config.json: code that a reader would be asked to trust, and a path of somebody's machine."""


@dataclass(frozen=True)
class Source:
    """A model that was checked, in a folder."""

    folder: Path
    config: DecoderConfig
    symbols: Symbols
    tokenizer: Tokenizer

    @property
    def is_ours(self) -> bool:
        """Whether the tokenizer is one of `yanmo tokenize`, whose texts begin with `<|bos|>`."""
        return self.tokenizer.token_to_id(_BOS) == self.symbols.bos


def checked(folder: Path) -> Source:
    """The model in `folder`, when all of it was checked.

    Raises:
        DataError: weights, config.json and tokenizer do not belong together, or one is damaged or missing.
    """
    config, symbols = read_config(folder)
    check_weights(folder, shapes_of(folder, config))
    return Source(folder, config, symbols, tokenizer_of(folder, config.vocab_size))


def write_weights(source: Source, folder: Path, dtype: str) -> None:
    """Write the weights to one file; memory holds one of them at a time.

    Raises:
        OSError: the disk is full, among others.
    """
    stored = read_headers(source.folder)
    if source.config.tie_word_embeddings:
        stored.pop("lm_head.weight", None)
    progress = Progress(log, "written", sum(tensor.bytes for tensor in stored.values()), unit="B")

    def read(name: str) -> torch.Tensor:
        progress.add(stored[name].bytes)
        return read_tensor(stored[name])

    shapes = {name: tensor.shape for name, tensor in stored.items()}
    write_one_by_one(shapes, folder / WEIGHTS, read, DTYPES[dtype])


def write_settings(source: Source, folder: Path, dtype: str) -> None:
    """Write config.json, generation_config.json and the tokenizer's files."""
    written = {
        "config.json": _config(source, dtype),
        "generation_config.json": generation_settings(source),
        "tokenizer_config.json": _tokenizer_config(source),
    }
    for name, value in written.items():
        _write_json(folder / name, value)
    for name in _COPIED:
        if (source.folder / name).is_file():
            shutil.copyfile(source.folder / name, folder / name)
    _write_tokenizer(source, folder / "tokenizer.json")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _config(source: Source, dtype: str) -> dict[str, Any]:
    name = str(DTYPES[dtype]).removeprefix("torch.")
    value = read_object(source.folder / "config.json")
    value = {key: each for key, each in value.items() if key not in _LEFT_OUT}
    return value | {"dtype": name, "torch_dtype": name}


def marks_that_end(source: Source) -> list[int]:
    """The ids that end a text: those that the model says, and the mark that ends an answer."""
    ends = ends_of(source.folder, source.symbols, source.config.vocab_size)
    end = source.tokenizer.token_to_id(END) if has_marks(source.tokenizer) else None
    return ends if end is None or end in ends else [*ends, end]


def generation_settings(source: Source) -> dict[str, Any]:
    """generation_config.json: how texts are chosen, and the marks that end them."""
    value, ends, symbols = generation_config(source.folder), marks_that_end(source), source.symbols
    ids = {"bos_token_id": symbols.bos, "pad_token_id": symbols.pad}
    return {**ids, **value, "eos_token_id": ends if len(ends) > 1 else ends[0]}


def _tokenizer_config(source: Source) -> dict[str, Any]:
    path = source.folder / "tokenizer_config.json"
    value = read_object(path) if path.is_file() else {"tokenizer_class": "PreTrainedTokenizerFast"}
    value = OF_A_DECODER | {key: each for key, each in value.items() if key not in _LEFT_OUT}
    if source.is_ours:
        spelled = source.tokenizer.id_to_token
        ids = {"bos_token": source.symbols.bos, "eos_token": source.symbols.eos}
        value = {name: spelled(i) for name, i in ids.items()} | value
        value |= {"add_bos_token": True, "model_max_length": source.config.max_position_embeddings}
    return value


def _write_tokenizer(source: Source, target: Path) -> None:
    """Write tokenizer.json, which puts `<|bos|>` before a text.

    In a store the mark is put there by who encodes; other programs do what tokenizer.json says.
    """
    path = source.folder / "tokenizer.json"
    if not source.is_ours:
        shutil.copyfile(path, target)
        return
    value = json.loads(path.read_text(encoding="utf-8"))
    begins = TemplateProcessing(
        single=f"{_BOS} $A", pair=f"{_BOS} $A $B:0", special_tokens=[(_BOS, source.symbols.bos)]
    )
    value["post_processor"] = value.get("post_processor") or json.loads(begins.__getstate__())
    target.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
