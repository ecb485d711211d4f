"""The rules of `--augment`: what is done to a genre's repeated documents, and how often.

    synonym        replace a word by a synonym; probability per word of the dictionary
    reorder        swap neighbouring clauses (in 赋 pairs of clauses, in 诗 couplets); per sentence
    insert         classical text alone: insert a function word (之 乎 也 者 而); per clause
    insert-modern  modern text alone: insert 的 between words or 了 after a clause; per place
    delete         delete a character (in modern text a word), never the first or last of a clause; per
                   character or word

Verse keeps its length, tones and rhymes: there a synonym has the same number of characters, each of the same
tone class, and never ends a clause; 诗 may swap couplets with the same tone pattern; nothing is inserted or
deleted.
Modern text changes by whole words, in sentences of nothing but Chinese (modern.py). Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from yanmo.common.errors import UsageError

RULES = ("reorder", "synonym", "insert", "insert-modern", "delete")
"""Names of the rules, in the order in which they are applied."""
ONLY = {"insert": True, "insert-modern": False}
"""Rules that are for one form alone -> whether for classical text."""
VERSE = ("诗", "词", "曲")
_KEEP_LENGTH = ("reorder", "synonym")
OTHERS = "*"
_ALIASES = {"shi": "诗", "ci": "词", "wen": "文", "fu": "赋", "qu": "曲", "shuo": "说"}
_ENTRY = re.compile(r"(?:([^:=,\s]+):)?([a-z-]+)=([0-9]*\.?[0-9]+)\Z")


@dataclass(frozen=True)
class AugmentRules:
    """Probability of each rule by genre; for each rule, `*` is every genre that it is not given for."""

    by_genre: Mapping[str, Mapping[str, float]]

    def __bool__(self) -> bool:
        return bool(self.by_genre)

    def of(self, genre: str) -> dict[str, float]:
        """Rule -> probability, in the order of application; for verse only rules that keep its length."""
        found = {**self.by_genre.get(OTHERS, {}), **self.by_genre.get(genre, {})}
        allowed = _KEEP_LENGTH if genre in VERSE else RULES
        return {rule: found[rule] for rule in allowed if found.get(rule)}


def parse_rules(text: str) -> AugmentRules:
    """Read `wen:synonym=0.1,wen:reorder=0.2,*:synonym=0.05`; a rule without a genre is for `*`.

    Raises:
        UsageError: an unknown rule, a probability outside of 0 to 1, a rule given twice for a genre, or one
            that would break verse.
    """
    found: dict[str, dict[str, float]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.match(entry)
        if not match or match[2] not in RULES or not 0 <= float(match[3]) <= 1:
            raise UsageError(
                f"--augment: expected genre:rule=probability (0 to 1) with a rule of {', '.join(RULES)}, "
                f"found {entry!r} (for instance wen:synonym=0.1,fu:reorder=0.2)"
            )
        genre = _ALIASES.get(match[1] or OTHERS, match[1] or OTHERS)
        if genre in VERSE and match[2] not in _KEEP_LENGTH:
            raise UsageError(f"--augment: {entry}: {match[2]} would break the lines of verse; leave it out")
        if match[2] in found.setdefault(genre, {}):
            raise UsageError(f"--augment: {match[2]} is given twice for {genre}")
        found[genre][match[2]] = float(match[3])
    return AugmentRules(found)
