"""Whether a poem has its form: by the rules that `yanmo evaluate` counts, or by the pattern of its tune.

Written apart from what writes verse (steps.py), which is tested by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from yanmo.chinese.pingshui import rhymes, tones
from yanmo.verse.forms import ANY, REGULAR, Form, Line
from yanmo.verse.poems import Poem, read_poem
from yanmo.verse.sound import (
    adhesion,
    alternation,
    mixed_ending,
    no_lone_level,
    opposition,
    whole_rhyme,
)

OF_REGULAR: dict[str, Callable[[Poem], tuple[int, int]]] = {
    rule.__name__: rule
    for rule in (whole_rhyme, alternation, opposition, adhesion, no_lone_level, mixed_ending)
}


def is_regulated(poem: Poem) -> bool:
    """Return whether a poem has a regular form and breaks no rule of rhyme and tones.

    An unknown character breaks none.
    """
    return poem.form is not None and all(a == b for a, b in (rule(poem) for rule in OF_REGULAR.values()))


def passes(text: str, form: Form) -> bool:
    """Return whether a text is a poem of the form, by all its rules."""
    poem = read_poem(text)
    if poem.shape != form.shape:
        return False
    if form.name not in REGULAR:
        return any(_is_of_tune(poem, pattern) for pattern in form.patterns)
    ((_, wanted),) = form.rhymes
    ends = [rhymes(line[-1]) or wanted for line in poem.lines[1::2]]
    return is_regulated(poem) and bool(wanted.intersection(*ends))


def _is_of_tune(poem: Poem, pattern: tuple[tuple[Line, ...], ...]) -> bool:
    ends = defaultdict(list)
    for text, (line,) in zip(poem.lines, pattern, strict=True):
        for character, tone in zip(text, line.tones, strict=True):
            if tone != ANY and tone not in (tones(character) or {tone}):
                return False
        if line.rhyme and (found := rhymes(text[-1])):
            ends[line.rhyme].append(found)
    return all(frozenset.intersection(*each) for each in ends.values())
