"""Rhyme by 平水韵, as (obeyed, looked at): only where the table knows every character it has to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from yanmo.chinese.pingshui import rhymes
from yanmo.evaluate.verse.poems import Poem

Tally = tuple[int, int]


def whole_rhyme(poem: Poem) -> Tally:
    """Whether the ends of all even lines belong to one rhyme."""
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
