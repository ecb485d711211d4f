"""Holds a model to a form of verse: which tokens may come next, as a logits processor of transformers.

    form = VerseForm(tokenizer, "七绝", rhyme="东")
    model.generate(**tokenizer("春", return_tensors="pt"), do_sample=True, logits_processor=[form])

`yanmo generate --form` writes with the same class. What may come next depends on few things (place, tones
still possible, rhyme), so that it is worked out once for each of them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from yanmo.chinese.pingshui import LEVEL, OBLIQUE, rhymes, tones
from yanmo.verse.forms import form_of
from yanmo.verse.pieces import Bools, Pieces
from yanmo.verse.steps import Rhymes, State, Steps, Way

_KEPT_BYTES, _KEPT_STEPS = 32 << 20, 1 << 14
"""Of masks, and of readings of a token, that are kept."""


class _Reading(NamedTuple):
    state: State
    begun: tuple[int, ...] = ()
    """Tokens of a character that is not whole yet."""


class VerseForm:
    """A form of verse, for one tokenizer. It may be called for any number of texts."""

    def __init__(
        self,
        tokenizer: Any,
        name: str,
        *,
        rhyme: str = "",
        tone: str = "strict",
        begins_at: int = 0,
        ends: Sequence[int] = (),
    ) -> None:
        """A form that begins with the prompt or behind it.

        Args:
            tokenizer: of transformers (a fast one) or of tokenizers.
            name, rhyme, tone: as for `form_of`.
            begins_at: index of the token that the poem begins with; marks such as `<|bos|>` are passed over.
                The length of the prompt, where that is a question and no poem's beginning.
            ends: ids that end a text, of which one comes behind the poem; default: the tokenizer's eos.

        Raises:
            ValueError: there is no such form or rhyme, or the tokenizer has not the characters for it.
        """
        self.form = form_of(name, rhyme, tone)
        self._pieces = Pieces(getattr(tokenizer, "backend_tokenizer", tokenizer))
        self._begins_at = begins_at
        self._ends = list(ends) or [tokenizer.eos_token_id]
        self._steps = Steps(self.form, self._rhymes())
        keeps = functools.lru_cache(maxsize=max(_KEPT_BYTES // len(self._pieces.texts), 64))
        self._fitting, self._masked = keeps(self._pieces_of), keeps(self._mask_of)
        self._after = functools.lru_cache(maxsize=_KEPT_STEPS)(self._read)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (B, vocabulary) with minus infinity for what may not come next.

        Raises:
            ValueError: a text does not fit the form.
        """
        may = self.allowed(input_ids[:, self._begins_at :].tolist(), scores.shape[-1])
        return scores.masked_fill(~may.to(scores.device), -torch.inf)

    def allowed(self, texts: Sequence[Sequence[int]], size: int) -> Tensor:
        """(texts, size), bool: the tokens that may come next in each poem; raises as `__call__`."""
        rows = torch.stack([self._tokens(self._reading(ids)) for ids in texts])
        return torch.nn.functional.pad(rows, (0, size - rows.shape[-1]))

    def lines_left(self, ids: Sequence[int]) -> int:
        """Lines of a poem that are not whole yet, with the marks behind them; raises as `__call__`."""
        return self._steps.lines_left(self._reading(ids).state)

    def _reading(self, ids: Sequence[int]) -> _Reading:
        reading = _Reading(self._steps.start)
        for token in ids:
            if token in self._pieces.marks or token in self._ends:
                continue
            reading = self._after(reading, token)
        return reading

    def _read(self, reading: _Reading, token: int) -> _Reading:
        pieces, begun = self._pieces, (*reading.begun, token)
        if pieces.goes_on(begun):
            return _Reading(reading.state, begun)
        text = pieces.spelled.get(begun) or ("" if reading.begun else pieces.texts[token])
        state: State | None = reading.state
        for character in text or "\ufffd":
            state = state and self._steps.after(state, character)
        if state is None:
            place = self._steps.described(reading.state)
            raise ValueError(f"{text!r} does not fit {self.form.name} at {place}; see --tone and --rhyme")
        return _Reading(state)

    def _tokens(self, reading: _Reading) -> Tensor:
        """(V,), bool: the tokens that may come next."""
        state, begun = reading
        if self._steps.is_done(state):
            return torch.isin(torch.arange(len(self._pieces.texts)), torch.tensor(self._ends))
        rhyming = self._steps.to_rhyme(state)
        if not state.used or not 0 <= rhyming < self._pieces.longest:
            return self._masked(state.at, state.ways, begun)
        fitting = self._fitting(state.at, state.ways) & ~self._pieces.holding(state.used, rhyming)
        return torch.from_numpy(self._pieces.tokens(fitting, begun))

    def _mask_of(self, at: int, ways: frozenset[Way], begun: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(self._pieces.tokens(self._fitting(at, ways), begun))

    def _pieces_of(self, at: int, ways: frozenset[Way]) -> Bools:
        return self._pieces.fitting(self._steps.demands(at, ways, self._pieces.longest))

    def _rhymes(self) -> Rhymes:
        """The rhymes that have a character for every line.

        Raises:
            ValueError: there is none, or the tokenizer cannot write what each poem needs.
        """
        single, most = self._pieces.single, self.form.num_rhyming
        found = []
        for _, groups in self.form.rhymes:
            counts = Counter(group for c in single for group in rhymes(c) & groups)
            found.append(frozenset(group for group, number in counts.items() if number >= most))
            if not found[-1]:
                have = max(counts.values(), default=0)
                raise ValueError(
                    f"{self.form.name} needs {most} characters of one rhyme, and the tokenizer writes {have} "
                    f"at most of {' '.join(sorted(groups))[:60]}; choose another --rhyme"
                )
        classes = {tone for c in single for tone in tones(c)}
        if not {LEVEL, OBLIQUE} <= classes or not {"，", "。", "\n"} <= single:
            raise ValueError("the tokenizer does not write Chinese verse: characters or marks are missing")
        return tuple(found)
