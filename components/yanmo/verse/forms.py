"""The forms of verse: how many lines of how many characters, in which tones, which of them rhyme.

The tones of regular poems (诗) are those that the rules in this room let pass: lines of each tone are held to
them, so that no rule is written twice. 词 are written to a tune; what tune means which form was learned from
the corpus (ci_tunes.py), as no register of tunes with a free licence was found.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from yanmo.chinese.pingshui import LEVEL, OBLIQUE, rhyme_groups, rhymes
from yanmo.verse.poems import Poem
from yanmo.verse.sound import mixed_ending, no_lone_level

ANY = "中"
"""A place whose tone is free."""
REGULAR = {"五绝": (4, 5), "五律": (8, 5), "七绝": (4, 7), "七律": (8, 7)}
"""Form -> (lines, characters of each)."""
TONES = ("strict", "loose", "free")
_PAUSES, _STOPS = "，；？！", "。？！；"
_EXAMPLE = str.maketrans({LEVEL: "天", OBLIQUE: "月"})
"""A character of each tone, which has no reading of the other."""
_TUNES = Path(__file__).with_name("ci_tunes.txt")
_CLAUSE = re.compile(f"([{LEVEL}{OBLIQUE}{ANY}]+)([a-z]?)([，。])")


@dataclass(frozen=True)
class Line:
    """One way to write a line."""

    tones: str
    """`LEVEL`, `OBLIQUE` or `ANY` for each character."""
    rhyme: str = ""
    """The letter of the rhyme that its last character has; "" where it need not rhyme."""


@dataclass(frozen=True)
class Form:
    """A form, with the rhymes that were asked for."""

    name: str
    genre: str
    marks: tuple[tuple[str, ...], ...]
    """What follows each line, character by character: one of those."""
    patterns: tuple[tuple[tuple[Line, ...], ...], ...]
    """Whole poems, of which one holds: for each line the ways to write it."""
    rhymes: tuple[tuple[str, frozenset[str]], ...]
    """Letter, and the rhymes of 平水韵 that it may stand for."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Characters of each line."""
        return tuple(len(ways[0].tones) for ways in self.patterns[0])

    @property
    def num_rhyming(self) -> int:
        """Lines that rhyme, at most."""
        return max(sum(bool(ways[0].rhyme) for ways in pattern) for pattern in self.patterns)


def form_of(name: str, rhyme: str = "", tone: str = "strict") -> Form:
    """The form of that name.

    Args:
        name: 五绝, 五律, 七绝, 七律, or a tune of 词.
        rhyme: a character of the rhyme wanted, in a 词 with several that of the first; "" for any.
        tone: strict keeps to every rule; loose lets 孤平, 三平尾 and 三仄尾 be; free asks for no tones.

    Raises:
        ValueError: there is no such form or rhyme, or the form cannot rhyme so.
    """
    if tone not in TONES:
        raise ValueError(f"tone {tone[:20]}: expected {', '.join(TONES)}")
    if name in REGULAR:
        genre, patterns = "诗", _regular(*REGULAR[name], tone)
        lines = len(patterns[0])
        marks = tuple(_marks(i % 2 == 1, i + 1 == lines) for i in range(lines))
    elif name in tunes():
        genre = "词"
        clauses = _CLAUSE.findall(tunes()[name])
        marks = tuple(_marks(mark == "。", i + 1 == len(clauses)) for i, (_, _, mark) in enumerate(clauses))
        free = tone == "free"
        patterns = (tuple((Line(ANY * len(t) if free else t, letter),) for t, letter, _ in clauses),)
    else:
        raise ValueError(f"form {name[:20]}: expected {', '.join(REGULAR)} or a tune: {', '.join(tunes())}")
    return Form(name, genre, marks, patterns, _rhymes(name, genre, patterns, rhyme))


def known_forms() -> list[tuple[str, str]]:
    """(name, what its lines are) of every form."""
    regular = [(name, f"{lines}x{width}") for name, (lines, width) in REGULAR.items()]
    return [*regular, *tunes().items()]


@functools.cache
def tunes() -> dict[str, str]:
    """Tune -> its clauses, as ci_tunes.txt has them: tones, maybe the letter of a rhyme, a mark."""
    rows = [line for line in _TUNES.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {name: clauses for name, _, clauses in (row.split(" ") for row in rows)}


def _marks(ends: bool, is_last: bool) -> tuple[str, ...]:
    return (_PAUSES,) if not ends else (_STOPS,) if is_last else (_STOPS, "\n")


def _regular(lines: int, width: int, tone: str) -> tuple[tuple[tuple[Line, ...], ...], ...]:
    """The standard patterns: the second character begins level or oblique, the first line rhymes or not."""
    if tone == "free":
        return (tuple((Line(ANY * width, "a" if i % 2 else ""),) for i in range(lines)),)
    patterns = []
    for second, first_rhymes in itertools.product((LEVEL, OBLIQUE), (False, True)):
        pattern = []
        for i in range(lines):
            own = second if i % 4 in (0, 3) else _other(second)  # 对 within a couplet, 粘 between two
            pattern.append(_lines(width, own, bool(i % 2 or (i == 0 and first_rhymes)), tone == "strict"))
        patterns.append(tuple(pattern))
    return tuple(patterns)


def _lines(width: int, second: str, is_rhyming: bool, is_strict: bool) -> tuple[Line, ...]:
    """Ways to write a line: 2, 4, 6 alternate; 1, 3, 5 are free as far as the rules let them be.

    Each way is as wide as can be: where it has `ANY`, a character of unknown tone will do.
    """
    bound = {1: second, 3: _other(second), 5: second, width - 1: LEVEL if is_rhyming else OBLIQUE}
    choices = [bound.get(i, LEVEL + OBLIQUE + ANY) for i in range(width)]
    ways = ["".join(way) for way in itertools.product(*choices)]
    if is_strict:
        ways = [way for way in ways if all(map(_passes, itertools.product(*map(_either, way))))]
    widest = [way for way in ways if not any(way != other and _covers(other, way) for other in ways)]
    return tuple(Line(way, "a" if is_rhyming else "") for way in widest)


def _passes(tones: Iterable[str]) -> bool:
    line = Poem(("".join(tones).translate(_EXAMPLE),), ())
    return all(obeyed == of for obeyed, of in (no_lone_level(line), mixed_ending(line)))


def _either(tone: str) -> str:
    return LEVEL + OBLIQUE if tone == ANY else tone


def _covers(wider: str, way: str) -> bool:
    return all(a in (b, ANY) for a, b in zip(wider, way, strict=True))


def _other(tone: str) -> str:
    return OBLIQUE if tone == LEVEL else LEVEL


def _rhymes(
    name: str, genre: str, patterns: tuple[tuple[tuple[Line, ...], ...], ...], wanted: str
) -> tuple[tuple[str, frozenset[str]], ...]:
    ends: dict[str, str] = {}
    for ways in itertools.chain.from_iterable(patterns):
        if ways[0].rhyme:
            ends[ways[0].rhyme] = LEVEL if genre == "诗" else ways[0].tones[-1]
    groups = {letter: _of_tone(tone) for letter, tone in sorted(ends.items())}
    if wanted:
        if not groups:
            raise ValueError(f"rhyme {wanted[:20]}: no lines of {name} are known to rhyme; leave it out")
        first = min(groups)
        found = _named(wanted) & groups[first]
        if not found:
            kind = {LEVEL: "a level", OBLIQUE: "an oblique"}.get(ends[first], "a")
            raise ValueError(
                f"rhyme {wanted[:20]}: expected a character of {kind} rhyme of 平水韵, as {name} has it: "
                + " ".join(sorted({group[-1] for group in groups[first]}))
            )
        groups[first] = found
    return tuple(groups.items())


def _of_tone(tone: str) -> frozenset[str]:
    return frozenset(group for group, its in rhyme_groups().items() if tone in (its, ANY))


def _named(character: str) -> frozenset[str]:
    """The rhyme that is named by the character, else those that have it."""
    return frozenset(g for g in rhyme_groups() if g[-1] == character) or rhymes(character)
