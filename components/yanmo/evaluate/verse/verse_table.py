"""The table of verse: each rule's share in held-out originals, by chance, and in the model's texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from yanmo.common.bootstrap import generator_for
from yanmo.evaluate.verse.chance import SCRAMBLES
from yanmo.evaluate.verse.parallel import Pairs, middle_couplets
from yanmo.evaluate.verse.verse_rules import CI, RULES, SHI, Knowledge, Rule, Tally, Text
from yanmo.verse.poems import read_poem
from yanmo.verse.tunes import Tunes

_ROUNDS = 3
"""Times that the originals are scrambled."""
_SEED = 0
_Z = 1.959964
Texts = Mapping[str, Sequence[Text]]
"""Genre -> texts."""


def learn(training: Iterable[tuple[str, str, str]]) -> Knowledge:
    """Return what the rules need to know, from (genre, title, text) of training documents."""
    couplets, songs = [], []
    for genre, title, text in training:
        if genre == SHI:
            couplets += middle_couplets(read_poem(text))
        elif genre == CI:
            songs.append((title, text))
    return Knowledge(Tunes.learn(songs), Pairs.learn(couplets, generator_for(_SEED, "couplets")))


def verse_table(knowledge: Knowledge, held_out: Texts, generated: Texts) -> list[dict[str, Any]]:
    """One row per rule, JSON values only.

    Returns:
        [{"name", "title", "genre", "unit", "held_out", "chance", "generated"}]; the last three are
        {"of", "share", "interval"}, share and interval None where nothing was looked at.
    """
    rows = []
    for rule in RULES:
        originals = held_out.get(rule.genre, ())
        rows.append(
            {
                **{name: getattr(rule, name) for name in ("name", "title", "genre", "unit")},
                "held_out": _share(_total(rule, originals, knowledge)),
                "chance": _share(_by_chance(rule, originals, knowledge), sure=False),
                "generated": _share(_total(rule, generated.get(rule.genre, ()), knowledge)),
            }
        )
    return rows


def _total(rule: Rule, texts: Sequence[Text], knowledge: Knowledge) -> Tally:
    found = [rule.count(text, knowledge) for text in texts]
    return sum(obeyed for obeyed, _ in found), sum(of for _, of in found)


def _by_chance(rule: Rule, texts: Sequence[Text], knowledge: Knowledge) -> Tally:
    """The rule on scrambled originals; on those alone that it looks at, and that are not empty."""
    seen = [text for text in texts if rule.count(text, knowledge)[1] and text.poem.lines]
    draw, obeyed, of = generator_for(_SEED, rule.name), 0, 0
    for _ in range(_ROUNDS if seen else 0):
        poems = SCRAMBLES[rule.scramble]([text.poem for text in seen], draw)
        scrambled = [Text(poem, text.title) for poem, text in zip(poems, seen, strict=True)]
        tally = _total(rule, scrambled, knowledge)
        obeyed, of = obeyed + tally[0], of + tally[1]
    return obeyed, of


def _share(tally: Tally, *, sure: bool = True) -> dict[str, Any]:
    obeyed, of = tally
    found: dict[str, Any] = {"of": of, "share": round(obeyed / of, 4) if of else None}
    return {**found, "interval": _wilson(obeyed, of) if of else None} if sure else found


def _wilson(obeyed: int, of: int) -> list[float]:
    """Wilson's 95 % interval; too narrow where several units come from one poem."""
    share, z2 = obeyed / of, _Z * _Z
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return [round(max(0.0, middle - half), 4), round(min(1.0, middle + half), 4)]
