"""Writes texts, many at a time: each is the same alone and among others, whatever their lengths.

A text that ends leaves its row to the next one that waits, so that one long text does not hold up many short
ones. The same sums over another number of rows differ in fp32's last digits where fewer than four rows are
multiplied by a thread (about 1e-5 of a logit). Only where two tokens are nearer to each other than that, or
a draw falls between them, does a text go another way.

The model may be on a GPU; tokens are chosen there too, from random numbers of the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from yanmo.model.generation.choosing import Choice, Draws, chosen
from yanmo.model.generation.writer import KeptKeys, Writer

STOP, LENGTH = "stop", "length"
"""Why a text ended, in the words of OpenAI's API: by its end mark, or by a limit."""
_FEWEST_ROWS = 8
"""Rows that are not taken away: with fewer than four for each of two threads, sums have other last digits."""
_WORTH_SHARING = 16
"""Tokens of a prompt from which on several texts of the same prompt read it once."""
_PROMPT_TOKENS = 8192
"""Tokens of prompts, padding included, that are read at a time."""


class Form(Protocol):
    """What a text is held to."""

    def allowed(self, texts: Sequence[Sequence[int]], size: int) -> Tensor:
        """(texts, size), bool: the tokens that may come next behind each, one at least."""

    def lines_left(self, ids: Sequence[int]) -> int:
        """Lines of a text that are not whole yet."""


@dataclass(eq=False)
class Text:
    """A text that is being written."""

    prompt: Sequence[int]
    """Token ids, at least one."""
    draws: Draws
    ends: frozenset[int]
    """Ids that end it; they are no part of it."""
    most: int
    """Tokens that are written, at most."""
    new: list[int] = field(default_factory=list)
    """What is written."""
    finish: str = ""
    """STOP or LENGTH once it has ended. Whoever reads along may end it, by setting this."""
    form: Form | None = None
    """What it is held to."""
    until: int = 0
    """Lines of the form that are left when it ends."""
    before: int = 0
    """Tokens of the prompt that are no part of what is held to the form."""
    log_mass: float = 0.0
    """Log of the probability of all that the form left to draw from, token by token."""

    @property
    def held(self) -> list[int]:
        """The tokens that are held to the form."""
        return [*self.prompt[self.before :], *self.new]


def write(
    writer: Writer,
    texts: Iterable[Text],
    choice: Choice,
    *,
    at_once: int,
    slides: bool = False,
    shares: bool = False,
) -> Iterator[list[Text]]:
    """Write all texts; yields those that were written at, after every token of each.

    Args:
        texts: taken from as rows become free.
        at_once: rows.
        slides: what happens where a text fills the model's context: it goes on with the latter half of the
            context alone before its eyes, or (False) ends with LENGTH.
        shares: whether a long prompt of several texts is read once for all of them; the last digits of its
            logits may differ from those of a prompt read for itself.

    Raises:
        ValueError: a prompt is empty, or leaves no room in the context of texts that do not slide.
    """
    waiting = iter(texts)
    rows = [_Row(text, writer, slides) for text in islice(waiting, at_once)]
    kept = writer.room(len(rows))
    seen = _Seen(writer, rows) if choice.repetition_penalty != 1 else None
    while any(row.is_live for row in rows):
        logits = _read(writer, kept, rows, shares)
        live = [row for row in rows if row.is_live]
        _hold(logits, rows, choice)
        numbers = [0.0] * len(rows) if choice.is_greedy else [row.draw() for row in rows]
        tokens = chosen(logits, choice, seen.table if seen else None, numbers)
        for row, token in zip(rows, tokens, strict=True):
            row.take(token)
        if seen:
            seen.add(tokens)
        yield [row.text for row in live]
        for i, row in enumerate(rows):
            if not row.is_live and (text := next(waiting, None)) is not None:
                rows[i] = _Row(text, writer, slides)
                kept.lengths[i] = 0
                if seen:
                    seen.begin(i, text.prompt)
        if left := _worth_keeping(rows):
            kept.keep(left)
            rows = [rows[i] for i in left]
            if seen:
                seen.keep(left)


class _Row:
    """A text in its row."""

    def __init__(self, text: Text, writer: Writer, slides: bool) -> None:
        self.text, self._slides = text, slides
        self._context = writer.config.max_position_embeddings
        self._begin = 0
        """The first token of the text that its row holds."""
        if not text.prompt:
            raise ValueError("a prompt needs at least one token")
        if len(text.prompt) >= self._context and not slides:
            raise ValueError(
                f"a prompt of {len(text.prompt)} tokens leaves no room in a context of {self._context}"
            )
        if text.form and text.form.lines_left(text.held) <= text.until:
            text.finish = STOP
        elif text.most < 1:
            text.finish = LENGTH

    @property
    def is_live(self) -> bool:
        """Return whether it is still written at."""
        return not self.text.finish

    def draw(self) -> float:
        """Return the next random number; any, where it has ended."""
        return self.text.draws(len(self.text.new)) if self.is_live else 0.0

    def take(self, token: int) -> None:
        """Write a token, unless the text has ended or ends by it."""
        text = self.text
        if text.finish:
            return
        if token in text.ends:
            text.finish = STOP
            return
        text.new.append(token)
        if text.form and text.form.lines_left(text.held) <= text.until:
            text.finish = STOP
            return
        is_full = not self._slides and len(text.prompt) + len(text.new) >= self._context
        if len(text.new) >= text.most or is_full:
            text.finish = LENGTH

    def unread(self, kept: KeptKeys, row: int) -> list[int]:
        """Return the tokens to be read next, one at least; what the row holds is dropped where it is full."""
        ids = [*self.text.prompt, *self.text.new]
        if len(ids) - self._begin > self._context:
            self._begin = len(ids) - max(1, self._context // 2)
            kept.lengths[row] = 0
        if not self.is_live or self._begin + kept.lengths[row] >= len(ids):
            kept.lengths[row] = max(kept.lengths[row] - 1, 0)  # the last one again
            return ids[-1:]
        return ids[self._begin + kept.lengths[row] :]


def _read(writer: Writer, kept: KeptKeys, rows: Sequence[_Row], shares: bool) -> Tensor:
    """Return logits (rows, vocabulary) after the last token of each row.

    Rows of which all have as many tokens to read, do so together. Else those with several are read before,
    and the last token of each once more together with the single ones of the others.
    """
    steps = [row.unread(kept, i) for i, row in enumerate(rows)]
    sharing = _sharing(steps) if shares else {}
    if len({len(step) for step in steps}) > 1 or sharing:
        several = [i for i, step in enumerate(steps) if len(step) > 1]
        firsts = [i for i in several if i not in sharing]
        for part in _parts(firsts, steps):
            writer.read(kept, part, [steps[i] for i in part])
        for i, first in sharing.items():
            kept.copy_row(first, i)
        for i in several:
            kept.lengths[i] -= 1
        steps = [step[-1:] for step in steps]
    return writer.read(kept, range(len(rows)), steps)


@torch.inference_mode()
def _hold(logits: Tensor, rows: Sequence[_Row], choice: Choice) -> None:
    """Let the logits (rows, vocabulary) be minus infinity where a text's form does not allow a token."""
    held = [(i, row.text) for i, row in enumerate(rows) if row.is_live and row.text.form]
    if not held:
        return
    size = logits.shape[-1]
    may = torch.cat([text.form.allowed([text.held], size) for _, text in held if text.form])
    at = [i for i, _ in held]
    own = logits[at]
    left = own.masked_fill(~may.to(logits.device), -torch.inf)
    logits[at] = left
    if not choice.is_greedy:
        heat = 1 / choice.temperature
        masses = (left * heat).logsumexp(-1) - (own * heat).logsumexp(-1)
        for (_, text), mass in zip(held, masses.tolist(), strict=True):
            text.log_mass += mass


def _sharing(steps: Sequence[Sequence[int]]) -> dict[int, int]:
    """Row -> the row before it that reads the same long prompt."""
    first: dict[tuple[int, ...], int] = {}
    long = [(i, tuple(step)) for i, step in enumerate(steps) if len(step) >= _WORTH_SHARING]
    return {i: at for i, step in long if (at := first.setdefault(step, i)) != i}


def _parts(chosen_rows: Sequence[int], steps: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Return the rows, those with as many tokens together, in parts that do not fill the memory."""
    part: list[int] = []
    for i in sorted(chosen_rows, key=lambda i: len(steps[i])):
        if part and (len(part) + 1) * len(steps[i]) > _PROMPT_TOKENS:
            yield part
            part = []
        part.append(i)
    if part:
        yield part


def _worth_keeping(rows: Sequence[_Row]) -> list[int]:
    """Return the rows that go on, where half of them have ended; empty where all stay."""
    live = [i for i, row in enumerate(rows) if row.is_live]
    if not live or len(rows) < 2 * max(len(live), _FEWEST_ROWS):
        return []
    ended = [i for i, row in enumerate(rows) if not row.is_live]
    return sorted([*live, *ended[: max(_FEWEST_ROWS - len(live), 0)]])


class _Seen:
    """Which tokens each text holds: (B, vocabulary), bool."""

    def __init__(self, writer: Writer, rows: Sequence[_Row]) -> None:
        shape = (len(rows), writer.config.vocab_size)
        self.table = torch.zeros(shape, dtype=torch.bool, device=writer.device)
        for i, row in enumerate(rows):
            self.begin(i, row.text.prompt)

    def begin(self, row: int, ids: Sequence[int]) -> None:
        """Let a row hold these tokens alone."""
        self.table[row] = False
        self.table[row, list(ids)] = True

    def add(self, tokens: Sequence[int]) -> None:
        """Add a token to each row."""
        self.table[range(len(tokens)), list(tokens)] = True

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these rows."""
        self.table = self.table[list(rows)]
