"""Prompts from a file: one a line, or JSONL; all are checked before the first is gone on from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yanmo.common.errors import DataError, UsageError
from yanmo.common.given_file import MIB, given_text, kind_of_json
from yanmo.common.plain_json import json_value
from yanmo.formats.chat_tokens import Turn
from yanmo.options.values import MOST_EXACT

_MOST_BYTES = 1024 * MIB
_ROLES = ("system", "user", "assistant")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but tab and line break: no training text holds one (`yanmo curate` takes them out)."""


@dataclass(frozen=True)
class Prompt:
    """What a model is to go on from: a text, or a conversation."""

    where: str
    """For a message: the file and the line."""
    text: str = ""
    turns: tuple[Turn, ...] = ()
    """The turns of a conversation; empty where it is a text."""
    seed: int | None = None
    """Its own seed, if it has one."""
    record: dict[str, Any] = field(default_factory=dict)
    """What is written beside the answer: its line in a JSONL file."""


def clean(text: str, where: str) -> str:
    """`text` with line breaks as the training text has them.

    Raises:
        DataError: it holds a control character, or half of a character beyond U+FFFF.
    """
    text = text.replace("\r\n", "\n")
    found = _CONTROL.search(text)
    if found:
        raise DataError(
            f"{where}: holds the control character U+{ord(found[0]):04X} at character {found.start() + 1}, "
            "which no model has read in training; take it out"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: character {error.start + 1} is half of one (a lone surrogate); write it whole"
        ) from error
    return text


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a file: JSONL where its name or its first character says so, else one a line.

    A record has a `prompt` (a text) or `messages` (role and content of each turn), maybe a `seed`. Lines of
    blanks are left out.

    Raises:
        DataError: a line is none, or the file has none; names the line.
    """
    try:
        whole = given_text(path, "prompts, one a line or JSONL", most_bytes=_MOST_BYTES)
    except FileNotFoundError:
        raise UsageError(f"--prompts {path}: no such file; look at its path") from None
    lines = [(f"{path}:{i}", line) for i, line in enumerate(whole.split("\n"), 1) if line.strip()]
    if not lines:
        raise DataError(f"{path}: holds no prompt; expected one a line, or JSONL")
    if path.suffix in (".jsonl", ".json", ".ndjson") or lines[0][1].lstrip().startswith("{"):
        return [_of_record(where, line) for where, line in lines]
    return [Prompt(where, text, record={"prompt": text}) for where, text in map(_cleaned, lines)]


def _cleaned(line: tuple[str, str]) -> tuple[str, str]:
    where, text = line
    return where, clean(text.removesuffix("\r"), where)


def _of_record(where: str, line: str) -> Prompt:
    try:
        value = json_value(line)
    except ValueError as error:
        raise DataError(f"{where}: expected a JSON object in one line: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, found {kind_of_json(value)}")
    seed = value.get("seed")
    if seed is not None and not (type(seed) is int and 0 <= seed <= MOST_EXACT):
        raise DataError(f"{where}: seed {seed!r:.40}: expected a whole number from 0 to {MOST_EXACT}")
    if ("prompt" in value) == ("messages" in value):
        raise DataError(f"{where}: expected either `prompt` or `messages`, found {', '.join(value)[:100]}")
    if "messages" in value:
        return Prompt(where, turns=_turns(where, value["messages"]), seed=seed, record=value)
    if not isinstance(value["prompt"], str):
        raise DataError(f"{where}: prompt: expected a text, found {kind_of_json(value['prompt'])}")
    return Prompt(where, clean(value["prompt"], where), seed=seed, record=value)


def _turns(where: str, messages: Any) -> tuple[Turn, ...]:
    """The turns of a conversation that waits for an answer.

    Raises:
        DataError: it is none: another role, an empty turn, an answer at its end.
    """
    turns = []
    for i, each in enumerate(messages if isinstance(messages, list) else [], 1):
        role, content = (each.get("role"), each.get("content")) if isinstance(each, dict) else (None, None)
        if role not in _ROLES or not isinstance(content, str) or not content.strip():
            raise DataError(
                f"{where}: message {i}: expected a role of {', '.join(_ROLES)} and a content that is a text "
                f"and not empty, found {each!r:.80}"
            )
        if role == "system" and i > 1:
            raise DataError(f"{where}: message {i}: a system turn can only be the first")
        turns.append(Turn(role, clean(content, f"{where}: message {i}")))
    if not turns or turns[-1].role != "user":
        raise DataError(
            f"{where}: messages: expected turns that end with the user's, who waits for an answer"
        )
    return tuple(turns)
