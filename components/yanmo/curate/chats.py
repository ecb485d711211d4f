"""Chats: conversations of system, user and assistant, from the usual layouts to documents with turns.

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}      OpenAI
    {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}          ShareGPT
    {"instruction": "...", "input": "...", "output": "...", "history": [["...", "..."]]}             Alpaca

A record is a chat when it has no text of its own but one of these. Each turn is cleaned and normalized by
itself; the document's text is its turns joined by line breaks, `turns` says where each begins and ends, and
`loss_spans` which are answers. So filters, duplicates, splits and take-down see a document like any other.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from yanmo.curate.cleaning import Cleaned, clean_all
from yanmo.curate.normalize import BREAK, END, Normalized, normalize

if TYPE_CHECKING:
    from yanmo.curate.parsing import RawDocument
    from yanmo.curate.text_options import TextOptions

FIELDS = ("messages", "conversations", "instruction", "input", "output", "history", "system")
"""Fields and columns that a chat may lie in."""
GENRE = "chat"
"""Of chats that name none."""
_ROLES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bot"), "assistant"),
}
_EXPECTED = "expected system, user or assistant (or ShareGPT's human and gpt)"


class Turn(NamedTuple):
    """What one side says."""

    role: str
    """system, user or assistant."""
    text: str
    is_answer: bool
    """Whether it carries loss: an assistant's, unless its `weight` is 0."""


def turns_of(record: Mapping[str, Any]) -> list[Turn] | str | None:
    """The turns of a chat, in words what is wrong with it, or None where the record is none."""
    messages = next((record[n] for n in ("messages", "conversations") if record.get(n) is not None), None)
    if messages is None:
        messages = _alpaca(record)
    if messages is None or not isinstance(messages, Sequence) or isinstance(messages, str):
        return None if messages is None else f"messages are a {type(messages).__name__}, expected a list"
    turns = []
    system = record.get("system")
    if isinstance(system, str) and system.strip():
        turns.append(Turn("system", system, False))
    for number, message in enumerate(messages, 1):
        turn = _turn(message)
        if isinstance(turn, str):
            return f"turn {number}: {turn}"
        turns.append(turn)
    if any(turn.role == "system" for turn in turns[1:]):
        return "a system turn that is not the first"
    if not any(turn.is_answer for turn in turns):
        return "a chat without an answer to learn from"
    return turns


def _turn(message: Any) -> Turn | str:
    if not isinstance(message, Mapping):
        return f"a {type(message).__name__}, expected role and content"
    said = message.get("role") or message.get("from")
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        return f"role {said!r}: {_EXPECTED}"
    text = _content(message.get("content") if "content" in message else message.get("value"))
    if text is None:
        return f"content of {role} is not text"
    if not text.strip():
        return f"{role} says nothing"
    return Turn(role, text, role == "assistant" and message.get("weight") != 0)


def _content(value: Any) -> str | None:
    """A turn's text: a string, or OpenAI's list of parts where all of them are text."""
    if isinstance(value, list):
        parts = [p.get("text") for p in value if isinstance(p, dict) and p.get("type") == "text"]
        texts = [text for text in parts if isinstance(text, str)]
        return "\n".join(texts) if len(texts) == len(value) else None
    return value if isinstance(value, str) else None


def _alpaca(record: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The messages of an Alpaca record; None where it is none."""
    instruction, output = record.get("instruction"), record.get("output")
    if not isinstance(instruction, str) or not isinstance(output, str):
        return None
    question = "\n".join(part for part in (instruction, record.get("input")) if part)
    pairs = [*(record.get("history") or []), (question, output)]
    return [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=False)
    ]


def written(documents: Sequence[RawDocument], options: TextOptions) -> tuple[list[Cleaned], Normalized]:
    """Clean and normalize all texts; the turns of chats each by itself, so that none flows into another.

    A chat with a turn of which nothing is left has no text at all, and no filter lets it pass.
    """
    texts = [[t.text for t in d.turns] if d.turns else [d.text] for d in documents]
    parts = list(itertools.chain.from_iterable(texts))
    cleaned = clean_all(parts, options.cleaning)
    normalized = normalize([c.text for c in cleaned], options.steps)
    if len(parts) == len(documents) and not any(d.turns for d in documents):
        return cleaned, normalized
    ends = list(itertools.accumulate(map(len, texts)))
    bounds = list(zip([0, *ends[:-1]], ends, strict=True))
    for document, (begin, end) in zip(documents, bounds, strict=True):
        if document.turns:
            said = zip(document.turns, normalized.texts[begin:end], strict=True)
            document.turns = [turn._replace(text=text) for turn, text in said]
    return [_joined(cleaned[a:b]) for a, b in bounds], _join_normalized(normalized, bounds)


def _joined(parts: Sequence[Cleaned]) -> Cleaned:
    if len(parts) == 1:
        return parts[0]
    return Cleaned(
        text="\n".join(p.text for p in parts),
        changes=tuple(dict.fromkeys(change for p in parts for change in p.changes)),
        private_use=sum(p.private_use for p in parts),
        lost=sum(p.lost for p in parts),
        has_markup=any(p.has_markup for p in parts),
        is_stub=any(p.is_stub for p in parts),
        is_garbled=any(p.is_garbled for p in parts),
    )


def _join_normalized(normalized: Normalized, bounds: Sequence[tuple[int, int]]) -> Normalized:
    texts, han, starts = [], [], [begin for begin, _ in bounds]
    counts = np.add.reduceat(normalized.counts, starts, axis=0)
    for i, (begin, end) in enumerate(bounds):
        whole = all(normalized.texts[begin:end])
        texts.append("\n".join(normalized.texts[begin:end]) if whole else "")
        han.append("".join(normalized.han[begin:end]) if whole else "")
        counts[i, BREAK] += end - begin - 1
        counts[i, END] -= end - begin - 1
        if not whole:
            counts[i] = 0
    changed = {step: np.logical_or.reduceat(which, starts) for step, which in normalized.changed.items()}
    return replace(normalized, texts=texts, han=han, counts=counts, changed=changed)


def columns_of(documents: Sequence[RawDocument]) -> dict[str, list[Any]]:
    """The columns `turns` and `loss_spans` of documents whose turns are normalized; null where there are
    none."""
    spans: list[Any] = []
    turns: list[Any] = []
    for document in documents:
        places = [(turn, *place) for turn, place in zip(document.turns, _placed(document.turns), strict=True)]
        spans.append([[begin, end] for turn, begin, end in places if turn.is_answer] if places else None)
        turns.append([{"role": t.role, "begin": begin, "end": end} for t, begin, end in places] or None)
    return {"loss_spans": spans, "turns": turns}


def _placed(turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """Where each turn begins and ends in the text that joins them, in characters."""
    ends = list(itertools.accumulate(len(turn.text) + 1 for turn in turns))
    return [(end - 1 - len(turn.text), end - 1) for turn, end in zip(turns, ends, strict=True)]
