"""What a person asked for, written by a model: one text, or several of a prompt at a time."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from yanmo.common.errors import DataError
from yanmo.formats.chat_tokens import Turn
from yanmo.model.generation.choosing import Choice, own_draws
from yanmo.model.generation.lines import write_lines
from yanmo.model.generation.writing import Text, write
from yanmo.tools.generate.named_model import NamedModel
from yanmo.tools.generate.options import GenerateOptions
from yanmo.tools.generate.spelling import Spelling, Streamed

if TYPE_CHECKING:
    from yanmo.verse.verse_form import VerseForm

_OF_THE_MODEL = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_AT_ONCE = 16
"""Texts that are written at a time."""


class WritingSession:
    """A model, and how it is to write."""

    def __init__(self, model: NamedModel, options: GenerateOptions, given: frozenset[str]) -> None:
        self.model, self.options = model, options
        self.choice = _choice(model, options, given)
        self.seed = options.seed if options.seed >= 0 else random.SystemRandom().randrange(1 << 31)
        self._spelling = Spelling(model.tokenizer)
        self.form = _form(model, options)

    @property
    def _genre(self) -> str:
        """The genre whose tag is read before a text: that of the form, where the model has it."""
        own = self.form.form.genre if self.form else ""
        return self.options.genre or (own if self.model.symbols.tag(own) is not None else "")

    def ids_of(self, prompt: str) -> list[int]:
        """Return what the model reads of a prompt.

        Raises:
            DataError: it fills the context, does not fit the form, or the tokenizer loses something of it.
        """
        options, model = self.options, self.model
        if options.chat:
            system = [Turn("system", options.system)] if options.system else []
            ids = model.ids_of_turns([*system, Turn("user", prompt)])
        else:
            ids = model.ids_of(prompt, self._genre)
        if self.form and not options.chat:
            try:
                self.form.lines_left(ids)
            except ValueError as error:
                raise DataError(f"the prompt: {error}") from error
        if len(ids) >= model.context and not self.form:
            raise DataError(
                f"the prompt: {len(ids)} tokens, and the context of {model.name} has {model.context}, of "
                "which one at least is for the answer; give a shorter one"
            )
        return ids

    def streamed(self, ids: Sequence[int], sample: int) -> Streamed:
        """Return a text that begins with `ids`, not written at yet.

        Args:
            sample: which of several texts of the prompt.
        """
        is_chat = self.options.chat
        ends = self.model.end_of_answer if is_chat else self.model.ends
        most = self.options.max_tokens if self.form is None else sys.maxsize  # the form says its length
        before = len(ids) if is_chat else 0
        text = Text(ids, own_draws(self.seed, sample), ends, most, form=self.form, before=before)
        return Streamed(text, self._spelling)

    def write(self, streams: Sequence[Streamed]) -> Iterator[list[Streamed]]:
        """Write all of them, some at a time; yields those that went on or ended, after every token."""
        by_text = {each.written: each for each in streams}
        for live in self._written(list(by_text)):
            yield [by_text[text] for text in live]

    def _written(self, texts: Sequence[Text]) -> Iterator[list[Text]]:
        writer, choice, slides = self.model.writer, self.choice, self.form is not None
        if slides and self.options.tries > 1 and not choice.is_greedy:
            return write_lines(writer, texts, choice, tries=self.options.tries, at_once=_AT_ONCE)
        # Half a poem has no form: a text that is held to one goes on where the context is full.
        return write(writer, texts, choice, at_once=_AT_ONCE, slides=slides, shares=True)


def _form(model: NamedModel, options: GenerateOptions) -> VerseForm | None:
    if not options.form:
        return None
    from yanmo.verse.verse_form import VerseForm

    try:
        return VerseForm(
            model.tokenizer, options.form, rhyme=options.rhyme, tone=options.tone, ends=sorted(model.ends)
        )
    except ValueError as error:
        raise DataError(f"{model.name}: {error}") from error


def _choice(model: NamedModel, options: GenerateOptions, given: frozenset[str]) -> Choice:
    """Return how tokens are chosen: by options that were given, else as the model's folder says."""
    values: dict[str, Any] = {name: getattr(options, name) for name in _OF_THE_MODEL}
    for name in _OF_THE_MODEL:
        found: Any = model.settings.get(name)
        kinds = (int,) if name == "top_k" else (int, float)
        if name not in given and type(found) in kinds and _is_possible(name, found):
            values[name] = found
    if "temperature" not in given and model.settings.get("do_sample") is False:
        values["temperature"] = 0.0
    return Choice(**values)


def _is_possible(name: str, value: float) -> bool:
    limits = {"top_p": (0, 1), "min_p": (0, 1), "temperature": (0, 1000), "repetition_penalty": (0, 100)}
    low, high = limits.get(name, (0, 10**9))
    return low <= value <= high and (value > 0 or name not in ("top_p", "repetition_penalty"))
