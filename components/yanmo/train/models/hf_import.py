"""Put a Qwen3-type model in Hugging Face's folder layout into the store, as if `yanmo train` had made it.

    yanmo model import FOLDER --store runs/store        prints train/KEY, for `yanmo train --model train/KEY`

The key follows from the files' bytes, so that importing twice gives one output. Weights may lie in several
safetensors files; they are read once to be sure that they fit config.json, and written in fp32. To train it
further the token cache must have been made with the model's own tokenizer.json. Nothing in the folder is
executed, and pickled weights are not read.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from yanmo.common.answers import answer, only_answers
from yanmo.common.errors import ExitCode, UsageError
from yanmo.common.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.common.store.manifest import file_sha256
from yanmo.common.store.objects import ObjectStore

HELP = "import a Qwen3-type model from a folder in Hugging Face's layout"
log = logging.getLogger(__name__)
_NEEDED = ("config.json", "tokenizer.json")
_TAKEN = (*_NEEDED, "tokenizer_config.json", "special_tokens_map.json", "genres.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="with config.json, tokenizer.json and *.safetensors")


def run(store: ObjectStore, args: argparse.Namespace) -> int:
    """Commit the model and print how to name it."""
    folder = Path(args.folder)
    files = _files(folder)
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
    """
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    weights = sorted(folder.glob("*.safetensors"))
    if missing or not weights:
        lacks = ", ".join([*missing, *([] if weights else ["*.safetensors"])])
        raise UsageError(f"{folder}: expected a model in Hugging Face's layout, it lacks {lacks}")
    return [*(folder / name for name in _TAKEN if (folder / name).is_file()), *weights]


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
