"""Writes texts of a form line by line: each line several times, of which one is kept.

A form forbids tokens without looking ahead: a line may be led to where it can end in nothing that the model
would say. How likely the form was to be met shows in what it left to draw from, token by token. So a line
is kept with a probability in proportion to that product: with many tries the texts are drawn as the model
writes those of its texts that have the form (sequential Monte Carlo; Lew et al. 2023, arXiv:2306.03081).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from yanmo.model.generation.choosing import Choice, Draws
from yanmo.model.generation.writer import Writer
from yanmo.model.generation.writing import Text, write


def write_lines(
    writer: Writer, texts: Iterable[Text], choice: Choice, *, tries: int, at_once: int
) -> Iterator[list[Text]]:
    """Write all texts, which have forms; yields those that were written at, after every line of each.

    Args:
        tries: of each line.
        at_once: rows that are written at a time.
    """
    waiting = iter(texts)
    while batch := list(islice(waiting, max(at_once // tries, 1))):
        taken = dict.fromkeys(batch, 0)
        while live := [text for text in batch if not text.finish]:
            tried = {text: [_try(text, taken[text], i, tries) for i in range(tries)] for text in live}
            each = [attempt for attempts in tried.values() for attempt in attempts]
            for _ in write(writer, each, choice, at_once=len(each), slides=True, shares=True):
                pass
            for text, attempts in tried.items():
                taken[text] += max(len(attempt.new) for attempt in attempts) * tries
                kept = attempts[_drawn([a.log_mass for a in attempts], text.draws(taken[text]))]
                taken[text] += 1
                text.new += kept.new
                text.log_mass += kept.log_mass
                text.finish = "" if kept.until > text.until else kept.finish
            yield live


def _try(text: Text, taken: int, number: int, tries: int) -> Text:
    """Return the text up to its next line's end, with every `tries`-th of its random numbers from `taken`
    on."""
    assert text.form
    draws: Draws = lambda step: text.draws(taken + step * tries + number)  # noqa: E731
    until = max(text.form.lines_left(text.held) - 1, text.until)
    ids = [*text.prompt, *text.new]
    return Text(ids, draws, text.ends, text.most, form=text.form, until=until, before=text.before)


def _drawn(log_weights: Sequence[float], number: float) -> int:
    """An index, drawn in proportion to the weights by a number in [0, 1)."""
    weights = np.exp(np.array(log_weights) - max(log_weights))
    reached = weights.cumsum()
    return min(int(np.searchsorted(reached, number * reached[-1], side="right")), len(reached) - 1)
