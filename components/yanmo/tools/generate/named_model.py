"""The model that a person names: a folder in Hugging Face's layout, a channel's champion, an output's key."""

from __future__ import annotations

import importlib
import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from yanmo.common.errors import DataError, EnvironmentFault, UsageError
from yanmo.common.given_file import read_object
from yanmo.common.words import some_of
from yanmo.formats.chat_tokens import END, START, Turn, has_marks, prompt_ids
from yanmo.formats.round_trip import check_given_back, tokenizer_of
from yanmo.model.generation.writer import Writer
from yanmo.model.hf_export import Symbols, ends_of, generation_config, load
from yanmo.store.objects import ObjectStore
from yanmo.store.output import Output
from yanmo.tools.store.find import find

log = logging.getLogger(__name__)
_BOS = "<|bos|>"
_FORMS = "yanmo.curate.text.normalize"
_NAME = re.compile(r"([a-z]+-\d+)((?:[+-][a-z_]+)*)")
"""A form of texts, and the steps that options added and left out."""
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
        if not writes_chatml(self.folder):
            raise DataError(
                f"{self.folder}: its chat template is not ChatML: expected {START} and {END} in it; leave "
                "--chat out to let the model go on from a text"
            )
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
    settings = generation_config(folder)
    writer = Writer(model.to(device=where, dtype=_DTYPES[precision]))
    ends = frozenset(ends_of(folder, symbols, writer.config.vocab_size))
    return NamedModel(name, folder, writer, tokenizer, symbols, settings, ends, form)


def in_form(form: str, text: str) -> str:
    """Return a prompt in the text form of the model's training: 春眠不覺曉 as 春眠不觉晓.

    What `yanmo curate` did to the training text is done to the prompt, so that the model reads characters
    that it has learned. The code is curate's, found by its name: where it is not installed (OpenCC belongs to
    the image `data`) the prompt stays as it is, and the log says so. A line break at its end stays, as the
    model is to begin the next line.

    Args:
        form: as an output names it (`classical-1`, `modern-1+lacuna`); "" and unknown ones change nothing.
    """
    named = _NAME.fullmatch(form)
    if not named or not text.strip():
        return text
    try:
        forms = importlib.import_module(_FORMS)
        changes = named[2].replace("+", ",").replace("-", ",no-")
        found = str(forms.normalize([text], forms.form_steps(named[1], changes)[1]).texts[0])
    except ImportError as error:
        log.warning("the prompt is read as it is, not in the model's text form %s: %s", form, error)
        return text
    except (KeyError, ValueError):  # a form of another version
        return text
    found += "\n" * text.endswith("\n")
    if found != text:
        log.info("read in the model's text form %s: %s", form, found[:100])
    return found


def writes_chatml(folder: Path) -> bool:
    """Return whether a folder's own chat template, if it has one, has ChatML's marks; it is not run.

    A model that was tuned with other marks would be asked in a form that it does not know, and would answer
    badly without a word.

    Raises:
        DataError: the template cannot be read.
    """
    path, alone = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    config = read_object(path) if path.is_file() else {}
    try:
        found = alone.read_text(encoding="utf-8") if alone.is_file() else config.get("chat_template") or ""
    except UnicodeDecodeError as error:
        raise DataError(f"{alone}: expected a text in UTF-8: {error}; copy the model again") from error
    text = json.dumps(found)  # of several named ones, all
    return not found or (START in text and END in text)


def is_folder(what: str) -> bool:
    """Return whether `what` names a folder, and nothing in a store."""
    return bool(what) and len(what) < 1000 and Path(what).is_dir()


def model_output(store: ObjectStore, what: str, channel: str, where: str = "--model") -> Output:
    """The output of a model that `what` names; arguments and errors as of `open_model`.

    Args:
        where: what the command calls it, for messages.
    """
    return find(store, what, "train", channel=channel, where=where, also="a folder, ")


def _device(device: str) -> str:
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise EnvironmentFault(
            "--device cuda: this machine shows no GPU to torch; use one that does, or --device cpu or auto"
        )
    return "cuda" if has_gpu and device != "cpu" else "cpu"
