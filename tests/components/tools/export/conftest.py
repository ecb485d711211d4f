"""A small store with a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "generate"))  # importlib mode leaves it out

from saying import random_model

from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.file_store import FileStore
from yanmo.store.pointers import move_pointer
from yanmo.tokenize.tokenizer_files import CHAT_TEMPLATE


class Lab:
    """The store, and the model that is the champion of its channel main."""

    def __init__(self, folder: Path) -> None:
        self.store = FileStore(folder / "store")
        self.uri = str(folder / "store")
        made = commit_once(
            self.store, Recipe(stage="train", revision=1, semantic={"seed": 0}, inputs={}), _model
        )
        assert made is not None
        self.model = made
        move_pointer(self.store, "main", "champion", made.reference)

    @property
    def folder(self) -> Path:
        """Of the model."""
        return self.model.path("config.json").parent


def _model(attempt: Attempt) -> Result:
    folder = attempt.path("config.json").parent
    random_model(folder)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE}
    config |= {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "README.md").write_text("# A model\n", encoding="utf-8")
    for path in sorted(folder.iterdir()):
        attempt.add(path.name)
    return Result(counts={"steps": 5, "tokens": 90, "parameters": 1000})


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)
