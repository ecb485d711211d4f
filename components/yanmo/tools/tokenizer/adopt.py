"""`yanmo tokenizer import`: imports a tokenizer."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yanmo.common.errors import DataError, ExitCode, UsageError
from yanmo.common.given_file import given_json
from yanmo.common.words import plural
from yanmo.formats.genre_names import genre_problem
from yanmo.formats.records import GENRE_ALIASES
from yanmo.formats.round_trip import check_round_trip, open_tokenizer, probe_texts
from yanmo.formats.token_cache import TOKENIZER, SpecialIds
from yanmo.store.commit import Attempt, Recipe, Result, commit_once
from yanmo.store.objects import ObjectStore
from yanmo.store.pointers import move_pointer
from yanmo.tokenize.foreign import MOST_TOKENIZER_BYTES, added_tokens, no_tokenizer, read_segmenter
from yanmo.tokenize.tokenizer_files import special_ids, write_files
from yanmo.tokenize.vocabulary import CHAT, SPECIAL, TAGS

if TYPE_CHECKING:
    from yanmo.tools.tokenizer.command import AdoptOptions

log = logging.getLogger(__name__)
REVISION = 1
"""Raised by hand when the same tokenizer gives other files."""
NAME = "tokenizer.json"


def run(store: ObjectStore, options: AdoptOptions) -> int:
    """Commit the tokenizer and print how to use it."""
    value = read_foreign(Path(options.folder))
    genres = [GENRE_ALIASES.get(g.strip(), g.strip()) for g in options.genres.split(",") if g.strip()]
    for genre in genres:
        if problem := genre_problem(genre):
            raise UsageError(f"--genres: {problem}")
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    recipe = Recipe(
        stage=TOKENIZER,
        revision=REVISION,
        semantic={"imported": True, "genres": sorted(set(genres))},
        inputs={
            "tokenizer": {"content_digest": hashlib.sha256(text.encode()).hexdigest(), "uri": options.folder}
        },
    )
    path = _file(Path(options.folder))
    check_round_trip(open_tokenizer(path), probe_texts(), f"{path}")
    output = commit_once(store, recipe, lambda attempt: write_adopted(attempt, value, genres))
    assert output is not None
    if options.channel != "none":
        move_pointer(store, options.channel, TOKENIZER, output.reference)
    special = output.manifest.metadata
    print(f"tokenizer/{output.manifest.key[:12]}: {special['vocab_size']} ids, {special['added']} added")
    print(f"use it: yanmo tokenize --store {options.store} --tokenizer tokenizer/{output.manifest.key[:12]}")
    return ExitCode.DONE


def _file(place: Path) -> Path:
    return place / NAME if place.is_dir() else place


def read_foreign(place: Path) -> dict[str, Any]:
    """The content of the tokenizer.json in a folder, without truncation and padding.

    Raises:
        DataError: there is none, or it is not one.
    """
    path = _file(place)
    value: Any = None
    try:
        value = given_json(path, "a tokenizer.json", most_bytes=MOST_TOKENIZER_BYTES)
        value["model"]["type"], value["model"]["vocab"]
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: no such file; a folder saved by transformers holds one, an older one gets it by "
            "`AutoTokenizer.from_pretrained(folder).save_pretrained(folder)`"
        ) from error
    except (KeyError, TypeError) as error:
        raise no_tokenizer(path, value) from error
    return {**value, "truncation": None, "padding": None}


def write_adopted(attempt: Attempt, value: dict[str, Any], genres: list[str]) -> Result:
    """Write the tokenizer with what it lacked, and check that it gives texts back.

    Raises:
        DataError: it loses text, or its ids are not those that its file says.
    """
    value, added = with_specials(value)
    attempt.path(NAME).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    segmenter = read_segmenter(attempt.path(NAME))
    attempt.add(NAME)
    ids = {name: segmenter.id_of(name) for name in added_tokens(value)}
    wrong = {name: (place, ids[name]) for name, place in added_tokens(value).items() if ids[name] != place}
    if wrong:
        raise DataError(
            f"{NAME}: `tokenizers` gives other ids than the file says, (file, found): {wrong}; save "
            "it again with the library that made it"
        )
    special = _special_ids(value, segmenter.vocab_size, genres)
    write_files(attempt, special)
    log.info("%s, %d of them added", plural(segmenter.vocab_size, "id"), added)
    return Result(
        counts={"vocab_size": special.vocab_size}, metadata=vars(special) | {"added": added, "imported": True}
    )


def with_specials(value: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A tokenizer.json with every special token that Yanmo uses, and how many of them are new."""
    known = added_tokens(value)
    highest = max([*known.values(), _model_size(value["model"]) - 1])
    wanted = [name for name in (*SPECIAL[:3], *CHAT, *TAGS) if name not in known]
    new = [
        {
            "id": highest + 1 + i,
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, name in enumerate(wanted)
    ]
    return {**value, "added_tokens": [*(value.get("added_tokens") or []), *new]}, len(new)


def _model_size(model: dict[str, Any]) -> int:
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return max(vocabulary.values(), default=-1) + 1
    return len(vocabulary)


def _special_ids(value: dict[str, Any], size: int, genres: list[str]) -> SpecialIds:
    ids = added_tokens(value)
    bos, eos, pad = (ids[name] for name in SPECIAL[:3])
    tags = special_ids(size, genres).genres
    return SpecialIds(
        vocab_size=size,
        bos=bos,
        eos=eos,
        pad=pad,
        unk=pad,
        genres=tags,
        tag_ids=tuple(ids[TAGS[i]] for i in range(len(tags))),
        im_start=ids[CHAT[0]],
        im_end=ids[CHAT[1]],
    )
