"""The rules of verse that texts are held to, each with the scrambling that shows its chance level.

A rule says nothing by itself. A model's score is compared with that of held-out originals, which is high
where the rule is right, and with that of scrambled originals, which is then low.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from yanmo.evaluate.verse.parallel import Pairs
from yanmo.verse import sound
from yanmo.verse.poems import Poem
from yanmo.verse.tunes import Tunes

Tally = tuple[int, int]
SHI, CI = "诗", "词"


@dataclass(frozen=True)
class Text:
    """One text that is held to the rules of its genre."""

    poem: Poem
    title: str | None
    """None for generated texts, which have no title."""


@dataclass(frozen=True)
class Knowledge:
    """What the rules take from the training text."""

    tunes: Tunes
    pairs: Pairs


@dataclass(frozen=True)
class Rule:
    """One rule."""

    name: str
    title: str
    genre: str
    unit: str
    """What is counted."""
    scramble: str
    """How originals are scrambled for the chance level; a function of `chance`."""
    count: Callable[[Text, Knowledge], Tally]
    """(obeyed, looked at) in one text."""


def _regular(tally: Callable[[Poem], Tally]) -> Callable[[Text, Knowledge], Tally]:
    """The rule, for regular poems alone."""
    return lambda text, knowledge: tally(text.poem) if text.poem.form else (0, 0)


def _regular_form(text: Text, knowledge: Knowledge) -> Tally:
    return int(text.poem.form is not None), 1


def _regulated(text: Text, knowledge: Knowledge) -> Tally:
    """Return what `yanmo generate --form` always writes."""
    return int(sound.is_regulated(text.poem)), 1


def _equal_lines(text: Text, knowledge: Knowledge) -> Tally:
    """Any even number of lines of one length."""
    shape = text.poem.shape
    even = text.poem.whole and len(shape) > 0 and len(shape) % 2 == 0
    return int(even and set(shape) in ({5}, {7})), 1


def _fresh(poem: Poem) -> Tally:
    """Characters that no earlier line of the poem has used."""
    seen: set[str] = set()
    used = 0
    for line in poem.lines:
        used += sum(c in seen for c in line)
        seen |= set(line)
    total = sum(poem.shape)
    return total - used, total


def _even_pairs(text: Text, knowledge: Knowledge) -> Tally:
    return sound.even_pairs(text.poem)


def _alternating_lines(text: Text, knowledge: Knowledge) -> Tally:
    """Alternation in poems of any shape, so that a model that misses the form is judged too."""
    fit = tuple(line for line in text.poem.lines if len(line) in (5, 7))
    return sound.alternation(Poem(fit, ()))


def _own_tune(text: Text, knowledge: Knowledge) -> Tally:
    return knowledge.tunes.own(text.poem, text.title)


def _any_tune(text: Text, knowledge: Knowledge) -> Tally:
    return knowledge.tunes.any(text.poem)


def _parallel(text: Text, knowledge: Knowledge) -> Tally:
    return knowledge.pairs.parallel(text.poem)


def _rhyming_sentences(text: Text, knowledge: Knowledge) -> Tally:
    return sound.sentence_pairs(text.poem)


RULES = (
    Rule("form", "four or eight lines of five or seven", SHI, "poems", "any_lines", _regular_form),
    Rule("equal_lines", "even number of lines, all five or seven", SHI, "poems", "any_lines", _equal_lines),
    Rule("rhyme", "all even lines rhyme", SHI, "regular poems", "like_lines", _regular(sound.whole_rhyme)),
    Rule("regulated", "form, rhyme and all tones hold", SHI, "poems", "any_lines", _regulated),
    Rule("rhyme_pairs", "neighbouring even lines rhyme", SHI, "pairs", "like_lines", _even_pairs),
    Rule(
        "alternation",
        "tones alternate at 2, 4, 6",
        SHI,
        "lines of regular poems",
        "characters",
        _regular(sound.alternation),
    ),
    Rule(
        "alternation_any",
        "tones alternate at 2, 4, 6",
        SHI,
        "lines of any poem",
        "characters",
        _alternating_lines,
    ),
    Rule(
        "opposition", "对: opposite tones in a couplet", SHI, "couplets", "lines", _regular(sound.opposition)
    ),
    Rule("adhesion", "粘: one tone joins couplets", SHI, "joints", "lines", _regular(sound.adhesion)),
    Rule("no_lone_level", "no 孤平", SHI, "level endings", "characters", _regular(sound.no_lone_level)),
    Rule("mixed_ending", "no 三平尾, no 三仄尾", SHI, "lines", "characters", _regular(sound.mixed_ending)),
    Rule("parallel", "对仗: middle couplets parallel (proxy)", SHI, "couplets", "like_lines", _parallel),
    Rule("fresh", "characters new to the poem", SHI, "characters", "characters", _regular(_fresh)),
    Rule("own_tune", "usual line lengths of its tune", CI, "poems of known tunes", "lines", _own_tune),
    Rule("any_tune", "usual line lengths of some tune", CI, "poems", "lines", _any_tune),
    Rule("sentence_rhyme", "neighbouring sentences rhyme", CI, "pairs", "lines_between", _rhyming_sentences),
)
