"""Reads the usual layouts of chats between system, user and assistant into turns.

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}      OpenAI
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}          ShareGPT
    {"instruction": "...", "input": "...", "output": "...", "history": [["...", "..."]]}             Alpaca

A record is a chat when it has no text of its own but one of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from yanmo.common.given_file import kind_of_json

FIELDS = ("messages", "conversations", "instruction", "input", "output", "history", "system")
"""Fields and columns that may hold a chat."""
GENRE = "chat"
"""Genre of chats that name none."""
_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bot"), "assistant"),
}
_EXPECTED = "expected system, user or assistant (or ShareGPT's human and gpt)"


class Turn(NamedTuple):
    """One message of a chat."""

    role: str
    """system, user or assistant."""
    text: str
    is_answer: bool
    """Whether it carries loss: an assistant's message does, unless its `weight` is 0."""


def turns_of(record: Mapping[str, Any]) -> list[Turn] | str | None:
    """The turns of a chat, or a description of what is wrong with it, or None if it is not a chat."""
    own = next((n for n in ("messages", "conversations") if record.get(n) is not None), "")
    messages = record[own] if own else _alpaca(record)
    if messages is None:
        return None
    if isinstance(messages, str) and not own:
        return messages
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return f"messages are {kind_of_json(messages)}, expected a list"
    turns = []
    system = record.get("system")
    if system and not isinstance(system, str):
        return f"system is {kind_of_json(system)}, expected text"
    if system and system.strip():
        turns.append(Turn("system", system, False))
    for number, message in enumerate(messages, 1):
        turn = _turn(message)
        if isinstance(turn, str):
            return f"turn {number}: {turn}"
        turns.append(turn)
    if any(turn.role == "system" for turn in turns[1:]):
        return "a system turn that is not the first"
    answers = [number for number, turn in enumerate(turns) if turn.is_answer]
    if not answers:
        return "a chat without an answer to learn from"
    if not any(turn.role == "user" for turn in turns[: answers[-1]]):
        return "a chat without a question before its answer"
    return turns


def _turn(message: Any) -> Turn | str:
    if not isinstance(message, Mapping):
        return f"{kind_of_json(message)}, expected role and content"
    name = message.get("role") or message.get("from")
    role = _ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        return f"role {name!r}: {_EXPECTED}"
    text = _content(message.get("content") if "content" in message else message.get("value"))
    if text is None:
        return f"content of {role} is not text"
    if not text.strip():
        return f"{role} says nothing"
    weight = message.get("weight")
    if weight is not None and weight not in (0, 1):
        return f"weight {weight!r}: expected 0 or 1"
    return Turn(role, text, role == "assistant" and weight != 0)


def _content(value: Any) -> str | None:
    """A turn's text: a string, or OpenAI's list of parts where all of them are text."""
    if isinstance(value, list):
        parts = [p.get("text") for p in value if isinstance(p, dict) and p.get("type") == "text"]
        texts = [text for text in parts if isinstance(text, str)]
        return "\n".join(texts) if len(texts) == len(value) else None
    return value if isinstance(value, str) else None


def _alpaca(record: Mapping[str, Any]) -> list[dict[str, Any]] | str | None:
    """The messages of an Alpaca record, or what is wrong with it; None if it is not one."""
    instruction, output = record.get("instruction"), record.get("output")
    if not isinstance(instruction, str) or not isinstance(output, str):
        return None
    given, history = record.get("input"), record.get("history")
    if given and not isinstance(given, str):
        return f"input is {kind_of_json(given)}, expected text"
    is_pairs = isinstance(history, Sequence) and not isinstance(history, str)
    if history and not (is_pairs and all(_is_pair(pair) for pair in history)):
        return "history: expected a list of pairs of question and answer"
    question = "\n".join(part for part in (instruction, given) if part)
    pairs = [*(history or []), (question, output)]
    return [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
