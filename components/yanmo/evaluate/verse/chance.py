"""Scrambled poems: what a rule finds in texts that obey it by chance alone.

Each function gives as many poems, made of the given ones' parts, so that nothing is lost but the order that
the rule looks at is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from yanmo.verse.poems import Poem

Generator = np.random.Generator


def any_lines(poems: Sequence[Poem], generator: Generator) -> list[Poem]:
    """Every line is any line of any poem."""
    pool = [line for poem in poems for line in poem.lines]
    return [
        _with(poem, [pool[i] for i in generator.integers(len(pool), size=len(poem.lines))]) for poem in poems
    ]


def like_lines(poems: Sequence[Poem], generator: Generator) -> list[Poem]:
    """Every line is one of any poem, as long as it was and odd or even as it was."""
    pool = defaultdict(list)
    for poem in poems:
        for place, line in enumerate(poem.lines):
            pool[place % 2, len(line)].append(line)
    return [
        _with(poem, [_one(pool[place % 2, len(line)], generator) for place, line in enumerate(poem.lines)])
        for poem in poems
    ]


def lines(poems: Sequence[Poem], generator: Generator) -> list[Poem]:
    """The poem's own lines in another order."""
    return [_with(poem, [poem.lines[i] for i in generator.permutation(len(poem.lines))]) for poem in poems]


def lines_between(poems: Sequence[Poem], generator: Generator) -> list[Poem]:
    """Every line that ends a sentence is one that ends a sentence of any poem."""
    pool = [poem.lines[i] for poem in poems for i in poem.ends]
    result = []
    for poem in poems:
        changed = list(poem.lines)
        for i in poem.ends:
            changed[i] = _one(pool, generator)
        result.append(_with(poem, changed))
    return result


def characters(poems: Sequence[Poem], generator: Generator) -> list[Poem]:
    """Every character is any character of any poem."""
    pool = np.array([c for poem in poems for line in poem.lines for c in line])
    return [
        _with(poem, ["".join(pool[generator.integers(len(pool), size=len(line))]) for line in poem.lines])
        for poem in poems
    ]


def _one(pool: Sequence[str], generator: Generator) -> str:
    return pool[int(generator.integers(len(pool)))]


def _with(poem: Poem, changed: Sequence[str]) -> Poem:
    return Poem(tuple(changed), poem.ends, poem.whole)


SCRAMBLES: dict[str, Callable[[Sequence[Poem], Generator], list[Poem]]] = {
    f.__name__: f for f in (any_lines, like_lines, lines, lines_between, characters)
}
