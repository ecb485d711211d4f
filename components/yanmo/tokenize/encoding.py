"""Turns documents into tokens, chats by the template of their tokenizer.

    <|bos|> <|im_start|> user \n question <|im_end|> \n <|im_start|> assistant \n answer <|im_end|> \n <|eos|>

The ids are those of `AutoTokenizer.apply_chat_template` for the same messages, followed by `<|eos|>`: text
between two marks is encoded as the tokenizer does it, and a mark written in a text stays text
(`apply_chat_template` would read it as a mark). The answers carry loss, each with the `<|im_end|>` that ends
it: what a model has to write by itself.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from yanmo.common.errors import DataError
from yanmo.formats.records import num_characters
from yanmo.tokenize.segmenter import Segmenter

Array = np.ndarray[Any, np.dtype[Any]]


class Marks(NamedTuple):
    """Ids of the marks around documents and the turns of chats; -1 where the tokenizer has none."""

    bos: int
    eos: int
    im_start: int = -1
    im_end: int = -1


@dataclass(frozen=True)
class Encoded:
    """The tokens of a batch of documents."""

    ids: Array
    """int32: all documents, one after another."""
    offsets: Array
    """int64 (documents + 1)"""
    characters: Array
    """int32 (documents): non-white-space characters; for a chat, only those of its answers."""
    loss_spans: dict[int, list[list[int]]]
    """For each chat, by row: [begin, end) in tokens."""
    runs: dict[int, list[tuple[str, list[int]]]]
    """For each chat, by row: the texts between two marks, and their ids."""


def has_chats(batch: pa.RecordBatch) -> bool:
    """Whether a batch of documents holds a chat."""
    return "turns" in batch.schema.names and batch["turns"].null_count < len(batch)


def encode(segmenter: Segmenter, batch: pa.RecordBatch, marks: Marks) -> Encoded:
    """Encode a batch of documents (columns text, loss_spans and maybe turns).

    Raises:
        DataError: it holds chats, for which the tokenizer has no marks.
    """
    if not has_chats(batch):
        return Encoded(*segmenter.encode(batch["text"], marks.bos, marks.eos), {}, {})
    if min(marks.im_start, marks.im_end) < 0:
        raise DataError(
            "the documents hold chats, but the tokenizer has no <|im_start|> and <|im_end|>, or came with a "
            "chat template that writes something else; leave the chats out, or make a new tokenizer with "
            "`yanmo tokenize --tokenizer none`"
        )
    plain = batch.filter(batch["turns"].is_null())
    ids, offsets, plain_characters = segmenter.encode(plain["text"], marks.bos, marks.eos)
    written = iter(zip(np.split(ids, offsets[1:-1]), plain_characters.tolist(), strict=True))
    chats = _encode_chats(segmenter, batch, marks)
    parts, characters = [], []
    for row in range(len(batch)):
        found, count = (chats[row].ids, chats[row].characters) if row in chats else next(written)
        parts.append(found)
        characters.append(count)
    ends = np.zeros(len(batch) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=ends[1:])
    return Encoded(
        np.concatenate(parts).astype(np.int32),
        ends,
        np.array(characters, np.int32),
        {row: chat.spans for row, chat in chats.items()},
        {row: chat.runs for row, chat in chats.items()},
    )


@dataclass(frozen=True)
class _Chat:
    ids: Array
    spans: list[list[int]]
    runs: list[tuple[str, list[int]]]
    characters: int


def _encode_chats(segmenter: Segmenter, batch: pa.RecordBatch, marks: Marks) -> dict[int, _Chat]:
    """Every chat of a batch, by its row; all their texts are encoded in one call."""
    rows = np.flatnonzero(batch["turns"].is_valid().to_numpy(zero_copy_only=False)).tolist()
    columns = (batch[name].take(pa.array(rows)) for name in ("text", "turns", "loss_spans"))
    texts, turns, spans = (column.to_pylist() for column in columns)
    heads = [[turn["role"] + "\n" for turn in chat] for chat in turns]
    spoken = [
        [head + text[turn["begin"] : turn["end"]] for head, turn in zip(of, chat, strict=True)]
        for of, chat, text in zip(heads, turns, texts, strict=True)
    ]
    flat = ["\n", *itertools.chain.from_iterable(spoken)]
    ids, offsets, _ = segmenter.encode(pa.array(flat, pa.string()))
    pieces = iter(np.split(ids, offsets[1:-1]))
    line_break = next(pieces)
    found = {}
    for row, chat, answers, of, runs in zip(rows, turns, spans, heads, spoken, strict=True):
        written = list(zip(of, runs, itertools.islice(pieces, len(runs)), strict=True))
        found[row] = _chat(segmenter, marks, line_break, chat, answers, written)
    return found


def _chat(
    segmenter: Segmenter,
    marks: Marks,
    line_break: Array,
    turns: list[dict[str, Any]],
    answers: list[list[int]] | None,
    runs: list[tuple[str, str, Array]],
) -> _Chat:
    """Put the marks around the turns of one chat.

    Args:
        turns: role, begin and end of each.
        answers: spans of the text that carry loss; None takes all that the assistant says.
        runs: for each turn the role's line, the whole run of text, and its ids.
    """
    parts: list[Array] = [np.array([marks.bos])]
    spans, characters, length = [], 0, 1
    wanted = None if answers is None else {tuple(span) for span in answers}
    for turn, (head, run, ids) in zip(turns, runs, strict=True):
        parts += [np.array([marks.im_start]), ids, np.array([marks.im_end]), line_break]
        place = (turn["begin"], turn["end"])
        if turn["role"] == "assistant" if wanted is None else place in wanted:
            first = int(np.searchsorted(segmenter.widths[ids].cumsum(), len(head), "right"))
            spans.append([length + 1 + first, length + 2 + len(ids)])
            characters += num_characters(run[len(head) :])
        length += len(ids) + 2 + len(line_break)
    parts.append(np.array([marks.eos]))
    kept = [(run, ids.tolist()) for _, run, ids in runs]
    return _Chat(np.concatenate(parts), spans, kept, characters)
