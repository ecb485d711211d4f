"""What a person asked for, written by a model: prompts in a batch, or one text after another."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from yanmo.common.errors import DataError
from yanmo.model.generation.choosing import Choice
from yanmo.model.generation.draws import own_draws
from yanmo.model.generation.kept_keys import KeptKeys
from yanmo.model.generation.lines import write_lines
from yanmo.model.generation.writing import Text, write
from yanmo.tools.generate.named_model import NamedModel
from yanmo.tools.generate.options import GenerateOptions
from yanmo.tools.generate.spelling import Spelling, Streamed

if TYPE_CHECKING:
    from yanmo.verse.verse_form import VerseForm

_OF_THE_MODEL = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class WritingSession:
    """A model, and how it is to write."""

    def __init__(self, model: NamedModel, options: GenerateOptions, given: frozenset[str]) -> None:
        self.model, self.options = model, options
        self.choice = _choice(model, options, given)
        self.seed = options.seed if options.seed >= 0 else random.SystemRandom().randrange(1 << 31)
        self._spelling = Spelling(model.tokenizer)
        self.form = _form(model, options)
        self._kept: KeptKeys | None = None
        self._read: list[int] = []
        """What the row of `_kept` holds."""

    @property
    def genre(self) -> str:
        """The genre whose tag is read before a text: that of the form, where the model has it."""
        own = self.form.form.genre if self.form else ""
        return self.options.genre or (own if self.model.symbols.tag(own) is not None else "")

    @property
    def _slides(self) -> bool:
        return self.options.when_full == "slide" or self.form is not None  # half a poem has no form

    @property
    def _tries(self) -> int:
        return 1 if self.form is None or self.choice.is_greedy else self.options.tries

    def check_room(self, ids: Sequence[int], where: str, *, answers: bool) -> None:
        """See that a prompt can be gone on from; arguments as of `streamed`.

        Raises:
            DataError: it fills the context, or does not fit the form.
        """
        if self.form and not answers:
            try:
                self.form.lines_left(ids)
            except ValueError as error:
                raise DataError(f"{where}: {error}") from error
        if len(ids) >= self.model.context and not self._slides:
            raise DataError(
                f"{where}: {len(ids)} tokens, and the context of {self.model.name} has {self.model.context}, "
                "of which one at least is for the answer; shorten it, or give --when-full slide to read the "
                "latter half of the context alone"
            )

    def streamed(self, ids: Sequence[int], seed: int, sample: int, *, answers: bool) -> Streamed:
        """A text that begins with `ids`, not written at yet.

        Args:
            sample: which of several texts of the prompt.
            answers: whether it is an answer in a conversation, which its mark ends.
        """
        ends = self.model.end_of_answer if answers else self.model.ends
        most = self.options.max_tokens if self.form is None else sys.maxsize  # the form says its length
        before = len(ids) if answers else 0
        text = Text(ids, own_draws(seed, sample), ends, most, form=self.form, before=before)
        return Streamed(text, self._spelling, self.options.stop)

    def write(self, streams: Iterable[Streamed]) -> Iterator[list[Streamed]]:
        """Write all of them, some at a time; yields those that went on or ended, after every token."""
        by_text: dict[Text, Streamed] = {}

        def texts() -> Iterator[Text]:
            for each in streams:
                by_text[each.written] = each
                yield each.written

        for live in self._written(texts()):
            yield [by_text[text] if not text.finish else by_text.pop(text) for text in live]

    def _written(self, texts: Iterable[Text]) -> Iterator[list[Text]]:
        writer, choice, at_once = self.model.writer, self.choice, self.options.batch
        if self._tries > 1:
            return write_lines(writer, texts, choice, tries=self._tries, at_once=at_once)
        return write(writer, texts, choice, at_once=at_once, slides=self._slides, shares=True)

    def stream(self, streamed: Streamed) -> Iterator[str]:
        """Write one text; yields what can be shown. What the text before had in common is not read again."""
        if self._tries > 1:
            yield from (shown for _ in self._written([streamed.written]) if (shown := streamed.go_on()))
            return
        text = streamed.written
        kept, read = self._kept or self.model.writer.room(1), self._read
        self._kept, self._read = None, []
        kept.lengths[0] = _common(read, text.prompt[:-1])
        for _ in write(self.model.writer, [text], self.choice, at_once=1, slides=self._slides, kept=kept):
            if shown := streamed.go_on():
                yield shown
        ids = [*text.prompt, *text.new]
        if len(ids) <= self.model.context:  # or it has slid, and the row holds a later part
            self._kept, self._read = kept, ids[: kept.lengths[0]]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many items at the beginning are the same."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


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
    """How tokens are chosen: by options that were given, else as the model's folder says."""
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
