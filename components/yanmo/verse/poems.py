"""A poem as its rules see it: lines without punctuation, the places where a sentence ends, the form."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENDS = "。！？.!?\n"
_SILENT = re.compile("[“”‘’《》（）…—、]")
"""Marks that end no line; 、 is a pause inside a line of 词."""
_PIECES = re.compile(f"([，；：,;:{_ENDS}]+)")
_FORMS = {(4, 5): "五绝", (4, 7): "七绝", (8, 5): "五律", (8, 7): "七律"}
"""(lines, characters of each) -> the form, taken loosely: an old-style poem of that shape is one too."""


@dataclass(frozen=True)
class Poem:
    """One poem."""

    lines: tuple[str, ...]
    """Without punctuation; none is empty."""
    ends: tuple[int, ...]
    """Indexes of the lines that end a sentence."""
    whole: bool = True
    """Whether it came to its end; a generated text may have been cut."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Characters of each line."""
        return tuple(map(len, self.lines))

    @property
    def form(self) -> str | None:
        """五绝, 七绝, 五律 or 七律; None for everything else."""
        widths = set(self.shape)
        return _FORMS.get((len(self.lines), widths.pop())) if len(widths) == 1 and self.whole else None


def read_poem(text: str, whole: bool = True) -> Poem:
    """The poem that `text` is; punctuation and line breaks divide it."""
    lines: list[str] = []
    ends: list[int] = []
    pieces = _PIECES.split(_SILENT.sub("", text))
    for words, marks in zip(pieces[::2], [*pieces[1::2], "\n"], strict=True):
        if words:
            lines.append(words)
        if lines and any(mark in _ENDS for mark in marks) and ends[-1:] != [len(lines) - 1]:
            ends.append(len(lines) - 1)
    return Poem(tuple(lines), tuple(ends), whole)
