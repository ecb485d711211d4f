"""`yanmo model import`: imports a model."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from yanmo.common.answers import answer, only_answers
from yanmo.common.errors import DataError, ExitCode, UsageError
from yanmo.common.given_file import read_object
from yanmo.formats.round_trip import check_round_trip, probe_texts, tokenizer_of
from yanmo.formats.token_cache import GENRES_FILE, TOKENIZER, SpecialIds
from yanmo.model.weights_check import (
    WEIGHTS,
    check_is_no_gguf,
    check_weights,
    num_weights,
    read_headers,
    weight_files,
)
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.manifest import file_sha256
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.model.own_tokenizer import TEMPLATE, commit_tokenizer, write_tokenizer_files

if TYPE_CHECKING:
    from yanmo.tools.model.command import ImportOptions

log = logging.getLogger(__name__)
REVISION = 2
"""Raised by hand when the same files give another output; 2: with the tokenizer, its marks, and bf16."""
_NEEDED = ("config.json", "tokenizer.json")
_TAKEN = (*_NEEDED, "tokenizer_config.json", "special_tokens_map.json", "genres.json", TEMPLATE)


def run(store: ObjectStore, options: ImportOptions) -> int:
    """Check the model, commit it and its tokenizer, and print how to name it."""
    if "://" in options.folder:
        raise UsageError(f"{options.folder}: expected a folder of this machine, without ://")
    folder = Path(options.folder)
    with only_answers():
        files = _files(folder)
        check(folder)  # also where the same was taken before, by an older code maybe
        digests = {path.name: file_sha256(path) for path in files}
        tokenizer = commit_tokenizer(store, folder)
        recipe = Recipe(stage="train", revision=REVISION, semantic={"imported": digests}, inputs={})
        output = commit_once(store, recipe, lambda attempt: _build(folder, attempt, tokenizer))
        assert output is not None, "an import never pauses"
        named = f"tokenizer/{tokenizer.manifest.key}"
        log.info("tokenize with the model's own tokenizer: yanmo tokenize --tokenizer %s", named)
        answer(f"train/{recipe.key}")
    return ExitCode.DONE


def _files(folder: Path) -> list[Path]:
    """Return what counts of a folder.

    Raises:
        UsageError: it is no folder, or lacks something.
        DataError: its weights are pickles or for llama.cpp, or some are missing.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise UsageError(f"{folder}: expected a folder with a model in Hugging Face's layout, found {found}")
    check_is_no_gguf(folder)
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if missing:
        lacks = ", ".join(missing)
        raise UsageError(
            f"{folder}: expected a model in Hugging Face's layout, it lacks {lacks}{_hint(missing)}"
        )
    weights = weight_files(folder)
    there = [folder / name for name in _TAKEN if os.path.lexists(folder / name)]
    if no_files := [path.name for path in (*there, *weights) if not path.is_file()]:
        raise DataError(f"{folder}: expected files, and {', '.join(no_files)} is none; copy the model again")
    return [*(folder / name for name in _TAKEN if (folder / name).is_file()), *weights]


def _hint(missing: Sequence[str]) -> str:
    if missing != ["tokenizer.json"]:
        return ""
    return "; `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)` of transformers makes one"


def check(folder: Path) -> None:
    """Check everything that is taken of a folder: shape, weights, vocabulary, and that texts come back.

    Raises:
        DataError: names the file, what was expected and what was found.
    """
    from yanmo.model.hf_export import read_config, shapes_of

    config, _ = read_config(folder)
    check_weights(folder, shapes_of(folder, config))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            read_object(folder / name)
    tokenizer = tokenizer_of(folder, config.vocab_size)
    check_round_trip(tokenizer, probe_texts(), f"{folder / 'tokenizer.json'}")


def _stored_dtype(folder: Path) -> str:
    """Return the type that weights are stored in: bf16 where all are, else fp32, which holds any of them."""
    return "bfloat16" if {one.dtype for one in read_headers(folder).values()} == {"BF16"} else "float32"


def _build(folder: Path, attempt: Attempt, tokenizer: Output) -> Result:
    import torch

    from yanmo.model.hf_export import Symbols, describe, read_config
    from yanmo.model.weights_file import read_tensor, write_one_by_one

    config, _ = read_config(folder)
    marks = SpecialIds.read(tokenizer.path(GENRES_FILE))  # as text is tokenized for it
    symbols = Symbols(bos=marks.bos, eos=marks.eos, pad=marks.pad, genres=marks.genres, tag_ids=marks.tag_ids)
    into, dtype, stored = attempt.path("config.json").parent, _stored_dtype(folder), read_headers(folder)
    if config.tie_word_embeddings:
        stored.pop("lm_head.weight", None)
    shapes = {name: one.shape for name, one in stored.items()}
    kind = getattr(torch, dtype)
    write_one_by_one(shapes, into / WEIGHTS, lambda name: read_tensor(stored[name]), kind)
    names = [WEIGHTS, *describe(config, symbols, into, dtype=dtype), *write_tokenizer_files(folder, into)]
    for name in sorted(names):
        attempt.add(name)
    return Result(
        counts={"steps": 0, "tokens": 0, "parameters": num_weights(into)},
        metadata={"imported": True, "genres": list(symbols.genres)},
        references={TOKENIZER: tokenizer},
    )
