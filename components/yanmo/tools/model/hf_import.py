"""`yanmo model import`: imports a model."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from yanmo.common.answers import answer, only_answers
from yanmo.common.errors import DataError, ExitCode, UsageError
from yanmo.common.json_object import read_object
from yanmo.formats.round_trip import check_round_trip, open_tokenizer
from yanmo.formats.texts_at_hand import texts_at_hand
from yanmo.model.weights_check import check_weights, weight_files
from yanmo.options.fields import word
from yanmo.options.shared import ToolOptions, channel_opt
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.manifest import file_sha256
from yanmo.store.objects import ObjectStore

log = logging.getLogger(__name__)
_NEEDED = ("config.json", "tokenizer.json")
_TAKEN = (*_NEEDED, "tokenizer_config.json", "special_tokens_map.json", "genres.json")


@dataclass(frozen=True, kw_only=True)
class ImportOptions(ToolOptions, group="import"):
    """Import a Qwen3-type model from a folder in Hugging Face's format.

    The store then holds it as if `yanmo train` had made it.

        yanmo model import FOLDER --store runs/store    # prints train/KEY, for `yanmo train --model`

    The key depends on the files' bytes, so that importing twice makes one output. Weights may be in
    several safetensors files and are stored as fp32. The import is refused, with the file's name,
    for weights that are not finite or do not have the shapes of config.json, for missing or
    duplicate parts, and for a tokenizer with another vocabulary or one that loses text. To train
    the model further, the token cache must be made with its own tokenizer.json. Nothing in the
    folder is executed, and pickled weights are not read.
    """

    folder: str = word("folder with config.json, tokenizer.json and *.safetensors")
    channel: str = channel_opt("channel on whose text the tokenizer is tried too; 'none' for no channel")


def run(store: ObjectStore, options: ImportOptions) -> int:
    """Check the model, commit it and print how to name it."""
    folder = Path(options.folder)
    files = _files(folder)
    check(store, folder, options.channel)  # also where the same was taken before, by an older code maybe
    digests = {path.name: file_sha256(path) for path in files}
    recipe = Recipe(stage="train", revision=1, semantic={"imported": digests}, inputs={})
    with only_answers():
        output = commit_once(store, recipe, lambda attempt: _build(folder, attempt))
        assert output is not None, "an import never pauses"
        answer(f"train/{recipe.key}")
    return ExitCode.DONE


def _files(folder: Path) -> list[Path]:
    """What counts of a folder.

    Raises:
        UsageError: it is no folder, or lacks something.
        DataError: its weights are pickles, or some are missing.
    """
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


def check(store: ObjectStore, folder: Path, channel: str) -> None:
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
    path = folder / "tokenizer.json"
    tokenizer = open_tokenizer(path)
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= config.vocab_size:
        raise DataError(
            f"{path}: of another vocabulary: it gives ids up to {highest}, the embedding of the model has "
            f"{config.vocab_size} rows; take the tokenizer that the model was trained with"
        )
    check_round_trip(tokenizer, texts_at_hand(store, channel), f"{path}")


def _build(folder: Path, attempt: Attempt) -> Result:
    from yanmo.model.hf_export import load, save

    loaded = load(folder)
    tokenizer = [folder / name for name in _TAKEN[1:4] if (folder / name).is_file()]
    names = save(loaded.model, loaded.symbols, attempt.path("config.json").parent, tokenizer)
    for name in names:
        attempt.add(name)
    parameters = sum(p.numel() for p in loaded.model.parameters())
    return Result(
        counts={"steps": 0, "tokens": 0, "parameters": parameters},
        metadata={"imported": True, "genres": list(loaded.symbols.genres)},
    )
