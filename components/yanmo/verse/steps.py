"""What may come next in a form: a machine that reads a poem character by character.

All patterns that still fit are kept (平起 and 仄起, a first line that rhymes and one that does not, each way
to fill the free places), and every character narrows them. So nothing is fixed before the text fixes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from yanmo.chinese.pingshui import rhymes, tones
from yanmo.chinese.text_runs import HAN_RANGES
from yanmo.verse.forms import ANY, Form, Line

Rhymes = tuple[frozenset[str], ...]
"""For each letter of a form the rhymes of 平水韵 that it may still stand for."""


@dataclass(frozen=True)
class Way:
    """One way in which the text so far fits."""

    pattern: int
    """Index in the form's patterns."""
    line: Line
    """How the present line is written; of the next one, behind the last character of a line."""
    rhymes: Rhymes


@dataclass(frozen=True)
class State:
    """What is known of a poem's beginning."""

    at: int
    """The place of the next character."""
    ways: frozenset[Way]
    used: frozenset[str]
    """Characters that have rhymed: none does so twice."""


@dataclass(frozen=True)
class Demand:
    """What a way asks of a character: one of `marks`, or a Han character of a tone and of some rhymes."""

    marks: str = ""
    tone: str = ANY
    rhymes: frozenset[str] | None = None
    """None where it need not rhyme."""

    def is_met(self, character: str) -> bool:
        """Return whether the character will do."""
        if self.marks:
            return character in self.marks
        in_tone = is_han(character) if self.tone == ANY else self.tone in tones(character)
        return in_tone and (self.rhymes is None or bool(self.rhymes & rhymes(character)))


class Steps:
    """The machine of a form."""

    def __init__(self, form: Form, rhymes: Rhymes) -> None:
        """`rhymes`: those of the form's that the writer has characters enough for."""
        self.form = form
        self._letters = {letter: i for i, (letter, _) in enumerate(form.rhymes)}
        self.places: list[tuple[int, int, str]] = []
        """(line, column, "") of each character, (line, -1, marks) of what follows a line."""
        for line, (width, marks) in enumerate(zip(form.shape, form.marks, strict=True)):
            self.places += [(line, column, "") for column in range(width)]
            self.places += [(line, -1, mark) for mark in marks]
        self.start = State(0, self._into(0, ((p, rhymes) for p in range(len(form.patterns)))), frozenset())

    def lines_left(self, state: State) -> int:
        """Lines that are not whole yet, with the marks behind them."""
        return 0 if self.is_done(state) else len(self.form.shape) - self.places[state.at][0]

    def described(self, state: State) -> str:
        """Return where the next character stands, for a message."""
        if self.is_done(state):
            return "its end"
        line, column, marks = self.places[state.at]
        return f"line {line + 1}, " + (f"character {column + 1}" if not marks else "end")

    def to_rhyme(self, state: State) -> int:
        """Places from the next character to the one that rhymes in this line; -1 where none does."""
        line, column, marks = self.places[state.at]
        rhyming = not marks and any(way.line.rhyme for way in state.ways)
        return self.form.shape[line] - 1 - column if rhyming else -1

    def is_done(self, state: State) -> bool:
        """Return whether the poem is whole."""
        return state.at == len(self.places)

    def after(self, state: State, character: str) -> State | None:
        """The state after one more character; None where it does not fit."""
        if self.is_done(state):
            return None
        line, column, marks = self.places[state.at]
        if marks:
            return State(state.at + 1, state.ways, state.used) if character in marks else None
        used, left = state.used, set[Way]()
        for way in state.ways:
            demand = self.demand(way, column)
            if not demand.is_met(character) or (demand.rhymes is not None and character in state.used):
                continue
            if demand.rhymes is not None:
                used = state.used | {character}
                way = self._narrowed(way, character)
            left.add(way)
        if not left:
            return None
        is_last = column + 1 == self.form.shape[line]
        into = self._into(line + 1, ((way.pattern, way.rhymes) for way in left)) if is_last else left
        return State(state.at + 1, frozenset(into), used)

    def _narrowed(self, way: Way, character: str) -> Way:
        """The way, when the rhyme of its line is one of the character's."""
        found, i = list(way.rhymes), self._letters[way.line.rhyme]
        found[i] &= rhymes(character)
        return replace(way, rhymes=tuple(found))

    def _into(self, line: int, left: Iterable[tuple[int, Rhymes]]) -> frozenset[Way]:
        """All ways to write a line, of the patterns and rhymes that are left."""
        if line == len(self.form.shape):
            return frozenset()
        return frozenset(Way(p, way, found) for p, found in left for way in self.form.patterns[p][line])

    def demand(self, way: Way, column: int) -> Demand:
        """Return what a way asks of a character of its line."""
        tone, letter = way.line.tones[column], way.line.rhyme
        if not letter or column + 1 < len(way.line.tones):
            return Demand(tone=tone)
        return Demand(tone=tone, rhymes=way.rhymes[self._letters[letter]])

    def demands(self, at: int, ways: frozenset[Way], most: int) -> set[tuple[Demand, ...]]:
        """Return what the ways ask of at most `most` next characters of this line and its marks."""
        line = self.places[at][0]
        ahead = [place for place in self.places[at : at + most] if place[0] == line]
        marks = tuple(Demand(marks=marks) for _, _, marks in ahead if marks)
        columns = [column for _, column, marks in ahead if not marks]
        own = ways if columns else [None]
        return {(*(self.demand(way, column) for column in columns if way), *marks) for way in own}


def is_han(character: str) -> bool:
    """Return whether it is a Han character."""
    return any(low <= ord(character) < high for low, high in HAN_RANGES)
