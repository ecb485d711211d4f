"""Whether a text has a form of verse, judged apart from what writes verse (verse/steps.py)."""

from __future__ import annotations

from collections import defaultdict

from yanmo.chinese.pingshui import rhymes, tones
from yanmo.verse.forms import ANY, REGULAR, Form, Line
from yanmo.verse.poems import Poem, read_poem
from yanmo.verse.sound import is_regulated


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
