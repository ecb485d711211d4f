"""The model that a person names: a folder in Hugging Face's layout, a channel's champion, an output's key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from yanmo.common.errors import DataError, EnvironmentFault, UsageError
from yanmo.common.given_file import read_object
from yanmo.common.words import some_of
from yanmo.formats.chat_tokens import END, Turn, has_marks, prompt_ids
from yanmo.formats.round_trip import check_given_back, tokenizer_of
from yanmo.model.generation.writer import Writer
from yanmo.model.hf_export import Symbols, load
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.generate.chat_template import check_template
from yanmo.tools.generate.model_form import in_form
from yanmo.tools.store.find import find

_BOS = "<|bos|>"
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class NamedModel:
    """A model that writes, and what belongs to it."""

    name: str
    folder: Path
    writer: Writer
    tokenizer: Tokenizer
    symbols: Symbols
    settings: dict[str, Any]
    """The model's generation_config.json; empty where it has none."""
    ends: frozenset[int]
    """Ids that end a text."""
    text_form: str = ""
    """The form of the text that it learned; "" where nothing says."""

    @property
    def context(self) -> int:
        """Tokens that the model sees at a time."""
        return self.writer.config.max_position_embeddings

    @property
    def end_of_answer(self) -> frozenset[int]:
        """Ids that end an answer in a conversation."""
        end = self.tokenizer.token_to_id(END)
        return self.ends if end is None else self.ends | {end}

    def ids_of(self, text: str, genre: str = "") -> list[int]:
        """Return what the model reads before it goes on from `text`: marks written in it are text.

        Args:
            genre: the genre whose tag is read before the text.

        Raises:
            DataError: the tokenizer loses something of the text.
            UsageError: the model knows no such genre.
        """
        is_ours = self.tokenizer.token_to_id(_BOS) == self.symbols.bos
        text = in_form(self.text_form, text)
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        check_given_back(self.tokenizer, [("the prompt", text)], [ids], self.name)
        if not is_ours:  # as transformers encodes it
            return self.tokenizer.encode(text).ids or [self.symbols.bos]
        return [self.symbols.bos, *self._tag(genre), *ids]

    def _tag(self, genre: str) -> list[int]:
        if not genre:
            return []
        tag = self.symbols.tag(genre)
        if tag is None:
            known = some_of(self.symbols.genres) or "none"
            raise UsageError(f"--genre {genre[:60]}: {self.name} has no such genre; it knows: {known}")
        return [tag]

    def ids_of_turns(self, turns: list[Turn]) -> list[int]:
        """Return what the model reads before it answers a conversation.

        Raises:
            DataError: the model's tokenizer has no marks for turns, or loses something of one; its chat
                template is another one.
        """
        if not has_marks(self.tokenizer):
            raise DataError(
                f"{self.name}: its tokenizer has no {END}, so it holds no conversation; leave --chat out to "
                "let it go on from a text"
            )
        check_template(self.folder, turns[0].role == "system")
        turns = [turn._replace(text=in_form(self.text_form, turn.text)) for turn in turns]
        ids = prompt_ids(self.tokenizer, turns, self.symbols.bos)
        is_ours = self.tokenizer.token_to_id(_BOS) == self.symbols.bos
        return ids if is_ours else ids[1:]  # Qwen's own chats begin with a mark


def open_model(store: ObjectStore | None, what: str, channel: str, device: str, precision: str) -> NamedModel:
    """The model that `what` names.

    Args:
        store: None where `what` is a folder.
        what: a folder, or what names an output (store/named.py); "" for the champion of `channel`.
        device: auto, cpu or cuda.
        precision: fp32 or bf16.

    Raises:
        UsageError: it names something that is no model.
        DataError: there is none, or it is damaged.
        EnvironmentFault: there is no such device.
    """
    where = _device(device)
    folder = Path(what) if is_folder(what) else None
    if folder is None:
        assert store is not None
        output = model_output(store, what, channel)
        output.paths("*")  # verified, all of them
        folder, name = output.path("config.json").parent, f"{output}"
        form = str(output.manifest.metadata.get("text_form", ""))
    else:
        name, form = what, ""
    model, symbols = load(folder)
    tokenizer = tokenizer_of(folder, model.config.vocab_size)
    settings = _settings(folder)
    writer = Writer(model.to(device=where, dtype=_DTYPES[precision]))
    ends = _ends(folder, settings, symbols, writer.config.vocab_size)
    return NamedModel(name, folder, writer, tokenizer, symbols, settings, ends, form)


def is_folder(what: str) -> bool:
    """Return whether `what` names a folder, and nothing in a store."""
    return bool(what) and len(what) < 1000 and Path(what).is_dir()


def model_output(store: ObjectStore, what: str, channel: str) -> Output:
    """The output of a model that `what` names; arguments and errors as of `open_model`."""
    return find(store, what or channel, "train", channel=channel, where="--model", also="a folder, ")


def _device(device: str) -> str:
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise EnvironmentFault(
            "--device cuda: this machine shows no GPU to torch; use one that does, or --device cpu or auto"
        )
    return "cuda" if has_gpu and device != "cpu" else "cpu"


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "generation_config.json"
    return read_object(path) if path.is_file() else {}


def _ends(folder: Path, settings: dict[str, Any], symbols: Symbols, size: int) -> frozenset[int]:
    """Return where transformers ends a text: the ids of generation_config.json, else of config.json."""
    for name, value in (
        ("generation_config.json", settings),
        ("config.json", read_object(folder / "config.json")),
    ):
        found = value.get("eos_token_id")
        ids = found if isinstance(found, list) else [] if found is None else [found]
        if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < size for i in ids):
            raise DataError(f"{folder / name}: eos_token_id {found!r:.60}: expected ids below {size}")
        if ids:
            return frozenset(ids)
    return frozenset([symbols.eos])
