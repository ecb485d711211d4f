"""Documents to token ids: by the compiled kernel with numba, by `tokenizers` without.

Both read the same vocabulary and return the same ids; a sample of each run is compared (`judge`), and a run
stops when one id differs. Special tokens written in a text stay text: `<|eos|>` in a document never ends it.

Chats are written by the template of their tokenizer:

    <|bos|> <|im_start|> user \n question <|im_end|> \n <|im_start|> assistant \n answer <|im_end|> \n <|eos|>

The ids are those of `AutoTokenizer.apply_chat_template` for the same messages, followed by `<|eos|>`: text
between two marks is encoded as the tokenizer does it, and a mark written in a text stays text
(`apply_chat_template` would read it as a mark). The answers carry loss, each with the `<|im_end|>` that ends
it: what a model has to write by itself.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from yanmo.common.errors import DataError, in_words
from yanmo.common.given_file import json_value
from yanmo.common.jit import has_numba
from yanmo.common.words import plural
from yanmo.formats.records import num_characters
from yanmo.formats.round_trip import open_tokenizer
from yanmo.tokenize.kernel import Trie, build_trie, segment

Array = np.ndarray[Any, np.dtype[Any]]
_BATCH = 1000


@dataclass(frozen=True)
class Segmenter:
    """A unigram vocabulary that encodes columns of text."""

    pieces: tuple[str, ...]
    scores: tuple[float, ...]
    unk: int
    byte0: int
    """Id of the piece of byte 0; the other bytes follow."""
    path: Path | None = None
    """The `tokenizer.json` it was read from."""

    @classmethod
    def of(
        cls, pieces: Sequence[str], scores: Sequence[float], unk: int = 0, path: Path | None = None
    ) -> Segmenter:
        """Return a segmenter of pieces whose ids are their positions."""
        return cls(tuple(pieces), tuple(scores), unk, pieces.index("<0x00>"), path)

    @classmethod
    def read(cls, path: Path) -> Segmenter:
        """Return the segmenter of a `tokenizer.json`.

        Raises:
            DataError: not a plain Unigram with byte fallback, the only model that the kernel supports.
        """
        try:
            value = json_value(path.read_text(encoding="utf-8"))
            model = value["model"]
            known = (model["type"], model["byte_fallback"]) == ("Unigram", True)
            steps = [step for step in ("normalizer", "pre_tokenizer") if value.get(step) is not None]
            if not known or steps:
                raise ValueError(f"a {model['type']} model with {', '.join(steps) or 'no byte fallback'}")
            pieces = [piece for piece, _ in model["vocab"]]
            if pieces.index("<0xFF>") - pieces.index("<0x00>") != 255:
                raise ValueError("its 256 byte pieces are not consecutive")
            # `tokenizers` reads one number in six off by one in its last place, and that decides between
            # ways that are as good: `茫茫` before `茫`, or behind it.
            read = json_value(open_tokenizer(path).to_str())["model"]["vocab"]
            scores = tuple(score for _, score in read)
            return cls(tuple(pieces), scores, model["unk_id"], pieces.index("<0x00>"), path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}: expected a Unigram tokenizer.json with byte_fallback and "
                f"without normalizer and pre-tokenizer, found {error}; make one with "
                "`yanmo tokenize --tokenizer none`"
            ) from error

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    @functools.cached_property
    def trie(self) -> Trie:
        """The search tables of the kernel."""
        return build_trie(self.pieces, self.scores)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """Piece -> id."""
        return {piece: i for i, piece in enumerate(self.pieces)}

    def id_of(self, piece: str) -> int:
        return self.ids[piece]

    @functools.cached_property
    def widths(self) -> Array:
        """int32 (vocabulary): characters of a piece; 0 for a byte inside a character."""
        widths = np.fromiter(map(len, self.pieces), np.int32, len(self.pieces))
        byte = np.arange(256)
        widths[self.byte0 : self.byte0 + 256] = (byte < 0x80) | (byte >= 0xC0)
        return widths

    @functools.cached_property
    def continues(self) -> Array:
        """bool (vocabulary): whether a piece begins inside a character."""
        continues = np.zeros(self.vocab_size, bool)
        continues[self.byte0 + 0x80 : self.byte0 + 0xC0] = True
        return continues

    @functools.cached_property
    def reference(self) -> Any:
        """The same vocabulary in `tokenizers`: to check against, and for use without numba."""
        from tokenizers import Tokenizer, models

        if self.path:
            return open_tokenizer(self.path)
        vocabulary = list(zip(self.pieces, self.scores, strict=True))
        return Tokenizer(models.Unigram(vocabulary, unk_id=self.unk, byte_fallback=True))

    def encode(self, column: pa.Array, bos: int = -1, eos: int = -1) -> tuple[Array, Array, Array]:
        """Encode the documents of a string column.

        Args:
            column: pyarrow string array without nulls.
            bos, eos: ids put around each document; -1 for none.

        Returns:
            ids (int32), offsets of the documents in them (int64, documents + 1), characters of each
            document that are not white space (int32).

        Raises:
            DataError: the column does not hold valid UTF-8.
        """
        if not has_numba():
            return self._encode_slowly(column, bos, eos)
        text, offsets = text_and_offsets(column)
        return segment(self.trie, text, offsets, self.byte0, bos, eos)

    def _encode_slowly(self, column: pa.Array, bos: int, eos: int) -> tuple[Array, Array, Array]:
        check_text(column)
        head, tail = [bos] * (bos >= 0), [eos] * (eos >= 0)
        parts: list[Array] = []
        characters: list[int] = []
        for begin in range(0, len(column), _BATCH):
            texts = column.slice(begin, _BATCH).to_pylist()
            for encoding in self.reference.encode_batch_fast(texts, add_special_tokens=False):
                parts.append(np.array([*head, *encoding.ids, *tail], np.int32))
            characters += [sum(not c.isspace() for c in text) for text in texts]
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        ids = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return ids, offsets, np.array(characters, np.int32)

    def judge(self, text: str, ids: list[int]) -> None:
        """Compare the `ids` of a text with those of `tokenizers`, and their text with the original.

        Raises:
            RuntimeError: one differs.
        """
        want = self.reference.encode(text, add_special_tokens=False).ids
        if want != ids:
            raise RuntimeError(
                f"the kernel's ids differ from those of tokenizers in the text {text[:200]!r}: "
                f"expected {want[:40]}, found {ids[:40]}"
            )
        if self.path and self.reference.decode(ids, skip_special_tokens=False) != text:
            raise RuntimeError(f"ids do not decode to the text they were made from: {text[:200]!r}")


def text_and_offsets(column: pa.Array) -> tuple[Array, Array]:
    """Return the UTF-8 of a string column (uint8) and where each value begins in it (int64), without copying.

    Raises:
        DataError: it is not valid UTF-8, or has nulls.
    """
    check_text(column)
    if len(column) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    wide = column.type in (pa.large_string(), pa.large_binary())
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32, len(column) + 1 + column.offset)
    offsets = offsets[column.offset :].astype(np.int64)
    text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return text[offsets[0] : offsets[-1]], offsets - offsets[0]


def check_text(column: pa.Array) -> None:
    """Raise DataError where a column is not text: the kernel relies on valid UTF-8."""
    if column.null_count:
        raise DataError(
            f"{plural(column.null_count, 'document')} without text (null); make them by `yanmo curate`"
        )
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"a document's text is not valid UTF-8: {in_words(error)}; make the documents by `yanmo curate`"
        ) from error


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
    """Return whether a batch of documents holds a chat."""
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
    """Return every chat of a batch, by its row; all their texts are encoded in one call."""
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
