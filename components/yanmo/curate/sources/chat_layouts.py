"""Reads the usual layouts of chats between system, user and assistant into turns.

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}      OpenAI
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}          ShareGPT
    {"instruction": "...", "input": "...", "output": "...", "history": [["...", "..."]]}             Alpaca

A record is a chat when it has no text of its own but one of these, or a question and its answer in one of
`_PAIRS`. `messages` may be a list in JSON, as in a column of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from yanmo.common.given_file import kind_of_json
from yanmo.formats.chat_tokens import Turn as Turn

Pair = tuple[str, str]
_LISTS = ("messages", "conversations")
_ALPACA = ("instruction", "output")
_PAIRS: tuple[Pair, ...] = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("query", "response"),
    ("question", "answer"),
    ("ask", "answer"),
)
FIELDS = tuple(
    dict.fromkeys(
        (
            *_LISTS,
            "instruction",
            "input",
            "output",
            "history",
            "system",
            *(n for pair in _PAIRS for n in pair),
        )
    )
)
"""Fields and columns that may hold a chat."""
PARAGRAPHS = ("paragraphs", "段落")
"""Fields and columns that may hold a text as a list: of chinese-poetry, and of MNBVC."""
TEXTS = ("content", "正文", "内容", "review")
"""Fields and columns that hold the text in many collections, where none has the name of --text-field."""
OTHERS = (*FIELDS, *PARAGRAPHS, *TEXTS)
"""All that may stand for the text."""
GENRE = "chat"
"""Genre of chats that name none."""
_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "prompter"), "user"),  # in any case
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bot"), "assistant"),
}
_EXPECTED = "expected system, user or assistant (or ShareGPT's human and gpt)"


def layout_of_chat(record: Mapping[str, Any], pair: Pair | None = None) -> str:
    """Return the names of the fields that `turns_of` reads a chat from; "" where it is none."""
    return "/".join(_layout(record, pair))


def _layout(record: Mapping[str, Any], pair: Pair | None) -> tuple[str, ...]:
    own = next((name for name in _LISTS if record.get(name) is not None), "")
    if own:
        return (own,)
    pairs = (*((pair,) if pair else ()), _ALPACA, *_PAIRS)
    return next((names for names in pairs if _is_filled(record, names)), ())


def _is_filled(record: Mapping[str, Any], names: Pair) -> bool:
    kinds = str if names == _ALPACA else (str, list)
    return all(isinstance(record.get(name), kinds) for name in names)


def turns_of(record: Mapping[str, Any], pair: Pair | None = None) -> list[Turn] | str | None:
    """Return the turns of a chat, or a description of what is wrong with it, or None if it is not a chat.

    Args:
        pair: further fields that may hold a question and its answer.
    """
    layout = _layout(record, pair)
    if not layout:
        return None
    messages = _messages(record, layout)
    if isinstance(messages, str):
        return messages
    turns: list[Turn] = []
    system = record.get("system")
    if system and not isinstance(system, str):
        return f"system is {kind_of_json(system)}, expected text"
    if system and system.strip():
        turns.append(Turn("system", system, False))
    for number, message in enumerate(messages, 1):
        turn = _turn(message)
        if isinstance(turn, str):
            return f"turn {number}: {turn}"
        if turn.role != "system" or turn.text.strip():
            turns.append(turn)
    return _with_loss(turns)


def _with_loss(turns: list[Turn]) -> list[Turn] | str:
    """Return the turns of a chat, without loss on a greeting before the first question."""
    if any(turn.role == "system" for turn in turns[1:]):
        return "a system turn that is not the first"
    if not any(turn.is_answer for turn in turns):
        return "a chat without an answer to learn from"
    first = next((number for number, turn in enumerate(turns) if turn.role == "user"), len(turns))
    turns = [*(turn._replace(is_answer=False) for turn in turns[:first]), *turns[first:]]
    return turns if any(turn.is_answer for turn in turns) else "a chat without a question before its answer"


def _messages(record: Mapping[str, Any], layout: tuple[str, ...]) -> Sequence[Any] | str:
    """Return the messages of a chat of that layout, or what is wrong with them."""
    if len(layout) == 2:
        return _alpaca(record) if layout == _ALPACA else _pair(record, layout)
    found = record[layout[0]]
    if isinstance(found, str):
        try:
            found = orjson.loads(found)
        except orjson.JSONDecodeError:
            return "messages are a text, expected a list, or one in JSON"
    if not isinstance(found, Sequence) or isinstance(found, str):
        return f"messages are {kind_of_json(found)}, expected a list"
    return found


def _pair(record: Mapping[str, Any], layout: Pair) -> list[Any] | str:
    """Return the messages of a question and its answer, each a text or a list of messages (TRL)."""
    asked, said = (record[name] for name in layout)
    if isinstance(asked, str) != isinstance(said, str):
        return f"{' and '.join(layout)}: expected two texts, or two lists of messages"
    if isinstance(asked, str):
        return [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    before = [{**each, "weight": 0} if isinstance(each, Mapping) else each for each in asked]
    return [*before, *said]


def _turn(message: Any) -> Turn | str:
    if not isinstance(message, Mapping):
        return f"{kind_of_json(message)}, expected role and content"
    name = message.get("role") or message.get("from")
    role = _ROLES.get(name.strip().lower()) if isinstance(name, str) else None
    if role is None:
        return f"role {name!r}: {_EXPECTED}"
    value = message.get("content") if "content" in message else message.get("value")
    text = "" if value is None and role == "system" else _content(value)
    if text is None:
        return f"content of {role} is not text"
    if not text.strip() and role != "system":
        return f"{role} says nothing"
    weight = message.get("weight")
    if weight is not None and weight not in (0, 1):
        return f"weight {weight!r}: expected 0 or 1"
    return Turn(role, text, role == "assistant" and weight != 0)  # what carries loss


def _content(value: Any) -> str | None:
    """Return a turn's text: a string, or OpenAI's list of parts where all of them are text."""
    if isinstance(value, list):
        parts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else p for p in value]
        texts = [text for text in parts if isinstance(text, str)]
        return "\n".join(texts) if len(texts) == len(value) else None
    return value if isinstance(value, str) else None


def _alpaca(record: Mapping[str, Any]) -> list[dict[str, Any]] | str:
    """Return the messages of an Alpaca record, or what is wrong with it."""
    instruction, output = record["instruction"], record["output"]
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
