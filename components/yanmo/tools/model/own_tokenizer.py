"""The tokenizer of an imported model, as it is, for `yanmo tokenize --tokenizer`.

`yanmo tokenizer import` adds marks of ours to a tokenizer, for a new model. A model that is trained already
knows its own marks, and its embedding has a row for each: so nothing is added here, the bytes of
tokenizer.json stay, and documents begin and end with what the model was trained with.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError
from yanmo.common.given_file import given_json, read_object
from yanmo.formats.chat_tokens import END, START
from yanmo.formats.token_cache import GENRES_FILE, TOKENIZER, SpecialIds
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.manifest import file_sha256
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tokenize.foreign import MOST_TOKENIZER_BYTES, added_tokens, read_segmenter
from yanmo.tools.generate.named_model import writes_chatml

REVISION = 1
"""Raised by hand when the same tokenizer gives other files."""
NAME, CONFIG, MAP, TEMPLATE = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
_END_OF_TEXT = "<|endoftext|>"
"""Between documents, in the training text of Qwen's models."""
log = logging.getLogger(__name__)


def own_marks(folder: Path) -> SpecialIds:
    """The special ids of a model in Hugging Face's layout, of which no text is made.

    A document ends with config.json's `eos_token_id`; where that is the mark that ends a turn of a chat, as
    in Qwen's chat models, with `<|endoftext|>`. It begins with `bos_token_id`, else as it ends.

    Raises:
        DataError: neither config.json nor the tokenizer says how a text ends.
    """
    path, config = folder / NAME, read_object(folder / "config.json")
    names = added_tokens(given_json(path, "a tokenizer.json", most_bytes=MOST_TOKENIZER_BYTES))
    size = read_segmenter(path).vocab_size
    ends = [each for each in _ids(config, "eos_token_id", size) if each != names.get(END)]
    ends += [names[name] for name in (_END_OF_TEXT, END) if name in names]
    if not ends:
        raise DataError(
            f"{folder / 'config.json'}: eos_token_id is {config.get('eos_token_id')!r:.60}, and {path} has "
            f"no {_END_OF_TEXT}: no mark ends a text; set eos_token_id to that of the model"
        )
    eos = ends[0]
    bos, pad = (next(iter(_ids(config, f"{name}_token_id", size)), eos) for name in ("bos", "pad"))
    holds_chats = {START, END} <= names.keys()
    if holds_chats and not writes_chatml(folder):
        holds_chats = False
        log.warning(
            "%s: its chat template has no marks of ChatML; its tokenizer is imported for texts alone, and "
            "chats are refused. To tune it on chats give it a template that writes ChatML",
            folder,
        )
    genres = read_object(folder / GENRES_FILE) if (folder / GENRES_FILE).is_file() else {}
    return SpecialIds(
        vocab_size=size,
        bos=bos,
        eos=eos,
        pad=pad,
        unk=pad,
        genres=tuple(genres.get("genres", ())),
        tag_ids=tuple(genres.get("tag_ids", ())),
        im_start=names[START] if holds_chats else -1,
        im_end=names[END] if holds_chats else -1,
    )


def _ids(config: Mapping[str, Any], name: str, size: int) -> list[int]:
    found = config.get(name)
    several = found if isinstance(found, list) else [found]
    return [each for each in several if type(each) is int and 0 <= each < size]


def tokenizer_config(folder: Path) -> dict[str, Any] | None:
    """A folder's tokenizer_config.json with its chat template, which transformers 4.52 and later write apart;
    None where the file says it as it is.

    Raises:
        DataError: the file, or the template, cannot be read.
    """
    alone = folder / TEMPLATE
    config = read_object(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if not alone.is_file():
        return None if config else {}
    try:
        text = alone.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{alone}: expected a text in UTF-8: {error}; copy the model again") from error
    return {**config, "chat_template": text}


def write_tokenizer_files(folder: Path, into: Path) -> list[str]:
    """Copy a model's tokenizer; returns the names of the files, of which none is ever missing."""
    shutil.copyfile(folder / NAME, into / NAME)
    changed = tokenizer_config(folder)
    if changed is None:
        shutil.copyfile(folder / CONFIG, into / CONFIG)
    else:
        text = json.dumps(changed, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
        (into / CONFIG).write_text(text, encoding="utf-8")
    if (folder / MAP).is_file():
        shutil.copyfile(folder / MAP, into / MAP)
    else:  # transformers 5 writes none
        (into / MAP).write_text("{}\n", encoding="utf-8")
    return [NAME, CONFIG, MAP]


def commit_tokenizer(store: ObjectStore, folder: Path) -> Output:
    """The committed tokenizer of a model.

    Raises:
        DataError: as `own_marks`, and where it does not give texts back.
    """
    special = own_marks(folder)
    given = {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name in _KEYED}
    recipe = Recipe(
        stage=TOKENIZER,
        revision=REVISION,
        semantic={"imported": given, "marks": json.loads(special.to_json())},
        inputs={},
    )

    def build(attempt: Attempt) -> Result:
        for name in write_tokenizer_files(folder, attempt.path(NAME).parent):
            attempt.add(name)
        attempt.write(GENRES_FILE, special.to_json())
        return Result(
            counts={"vocab_size": special.vocab_size}, metadata=vars(special) | {"added": 0, "imported": True}
        )

    output = commit_once(store, recipe, build)
    assert output is not None, "an import never pauses"
    return output


_KEYED = {NAME, CONFIG, MAP, TEMPLATE}
