"""Rhyme by 平水韵 and 平仄, as (obeyed, looked at): only where the table knows every character it has to.

A character with readings of both classes obeys whatever is asked. Positions are those of the last five
characters of a line; a line of seven has two more in front, which alternate as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from yanmo.chinese.pingshui import LEVEL, OBLIQUE, rhymes, tones
from yanmo.verse.poems import Poem

Tally = tuple[int, int]
_LEVEL, _OBLIQUE = frozenset(LEVEL), frozenset(OBLIQUE)


def _tones(line: str) -> list[frozenset[str]]:
    return [tones(character) for character in line]


def _strong(line: str) -> list[frozenset[str]]:
    """The tones at the 2nd, 4th and 6th character, which the metre binds."""
    return [tones(character) for character in line[1 : len(line) - 1 : 2]]


def _may_differ(a: frozenset[str], b: frozenset[str]) -> bool:
    return len(a | b) > 1


def _count(findings: Iterable[bool | None]) -> Tally:
    known = [found for found in findings if found is not None]
    return sum(known), len(known)


def alternation(poem: Poem) -> Tally:
    """Lines whose 2nd, 4th (and 6th) characters alternate between level and oblique."""

    def obeys(line: str) -> bool | None:
        strong = _strong(line)
        return all(map(_may_differ, strong, strong[1:])) if all(strong) else None

    return _count(map(obeys, poem.lines))


def opposition(poem: Poem) -> Tally:
    """对: couplets whose lines are of opposite tones at these places."""

    def obeys(first: str, second: str) -> bool | None:
        a, b = _strong(first), _strong(second)
        return all(map(_may_differ, a, b)) if all(a) and all(b) else None

    return _count(map(obeys, poem.lines[::2], poem.lines[1::2]))


def adhesion(poem: Poem) -> Tally:
    """粘: neighbouring couplets joined by one tone, at the 2nd character of the lines that meet."""

    def obeys(last: str, first: str) -> bool | None:
        a, b = tones(last[1]), tones(first[1])
        return bool(a & b) if a and b else None

    return _count(map(obeys, poem.lines[1::2], poem.lines[2::2]))


def no_lone_level(poem: Poem) -> Tally:
    """孤平 avoided: lines ending level, level at the 2nd of the last five, whose 1st or 3rd is level too."""

    def obeys(line: str) -> bool | None:
        last = _tones(line[-5:])
        if not all(last) or last[4] != _LEVEL or last[1] != _LEVEL:
            return None
        return not (last[0] == _OBLIQUE and last[2] == _OBLIQUE)

    return _count(map(obeys, poem.lines))


def mixed_ending(poem: Poem) -> Tally:
    """三平尾, 三仄尾 avoided: lines whose last three characters may be read in both classes of tone."""

    def obeys(line: str) -> bool | None:
        last = _tones(line[-3:])
        return len(frozenset().union(*last)) > 1 if all(last) else None

    return _count(map(obeys, poem.lines))


def whole_rhyme(poem: Poem) -> Tally:
    """Return whether the ends of all even lines belong to one rhyme."""
    found = [rhymes(line[-1]) for line in poem.lines[1::2]]
    return (int(bool(frozenset.intersection(*found))), 1) if found and all(found) else (0, 0)


def even_pairs(poem: Poem) -> Tally:
    """Neighbouring even lines whose ends rhyme."""
    return _pairs([line[-1] for line in poem.lines[1::2]])


def sentence_pairs(poem: Poem) -> Tally:
    """Neighbouring ends of sentences that rhyme: where 词 mostly does, though its rhymes are wider."""
    return _pairs([poem.lines[i][-1] for i in poem.ends])


def _pairs(characters: Sequence[str]) -> Tally:
    found = [rhymes(c) for c in characters]
    known = [(a, b) for a, b in itertools.pairwise(found) if a and b]
    return sum(bool(a & b) for a, b in known), len(known)


OF_REGULAR: dict[str, Callable[[Poem], Tally]] = {
    rule.__name__: rule
    for rule in (whole_rhyme, alternation, opposition, adhesion, no_lone_level, mixed_ending)
}
"""Rules of a poem with a regular form, by name."""


def is_regulated(poem: Poem) -> bool:
    """Return whether a poem has a regular form and breaks no rule of rhyme and tones.

    An unknown character breaks none.
    """
    return poem.form is not None and all(a == b for a, b in (rule(poem) for rule in OF_REGULAR.values()))
