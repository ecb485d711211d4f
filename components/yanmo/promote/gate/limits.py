"""Limits on guard metrics, which must stay in bounds whatever the bits per character are.

Standard library only, since the option is read where no numpy is.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from yanmo.options.nearest import did_you_mean
from yanmo.options.values import number_in

VERSE = {
    "form": "generated shi of four or eight lines of five or seven",
    "equal_lines": "generated shi of an even number of lines, all of five or seven",
    "rhyme": "generated regular poems that rhyme",
    "regulated": "generated shi whose form, rhyme and tones all hold",
    "rhyme_pairs": "neighbouring even lines of generated shi that rhyme",
    "alternation": "generated regular lines whose tones alternate",
    "alternation_any": "generated lines of five or seven whose tones alternate",
    "opposition": "generated couplets of opposite tones",
    "adhesion": "joints of generated couplets that share a tone",
    "no_lone_level": "generated level endings without a lone level tone",
    "mixed_ending": "generated lines that do not end in three equal tones",
    "parallel": "generated middle couplets that are parallel",
    "fresh": "characters new to their generated poem",
    "own_tune": "generated ci of the usual line lengths of their tune",
    "any_tune": "generated ci of the usual line lengths of some tune",
    "sentence_rhyme": "neighbouring sentences of generated ci that rhyme",
}
"""Rule of verse, by its name in an evaluation -> what its share is taken of."""

LIMIT_METRICS = {
    "distinct_2": "different character pairs in samples",
    "written_share": "samples that hold text",
    "ended_share": "samples ended by the model",
    "loop_share": "samples in a loop",
    "copied_8grams": "generated 8-grams found in the training text",
    "longest_copy": "longest copied run, characters",
    "genre_obedience": "samples of the genre asked for",
    "repeated_share": "samples equal to another one of their genre",
    "forgotten_bits": "bits per character of texts beyond those before tuning, mean of genres",
    **VERSE,
}
"""Name of a metric -> what it is; `yanmo.promote.gate.guards` reads them from an evaluation."""

MEASURED = ("contamination",)
"""What must be measured before anything is promoted, unless `--accept-unmeasured` names it."""

_LIMIT = re.compile(r"\s*(\w+)\s*(<=|>=)\s*([-+.\deE]+)\s*\Z")


@dataclass(frozen=True)
class Limit:
    """One bound of one metric."""

    metric: str
    sign: str
    """`<=` or `>=`."""
    bound: float

    def holds(self, value: float) -> bool:
        """Return whether `value` is within the bound; NaN is not."""
        return value <= self.bound if self.sign == "<=" else value >= self.bound

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}"


def parse_limits(text: str) -> tuple[Limit, ...]:
    """`"distinct_2>=0.5,loop_share<=0.3"` as limits; an empty text has none.

    Raises:
        ValueError: not of that form, or no metric of that name.
    """
    return tuple(_parsed(part) for part in text.split(",") if part.strip())


def parse_unmeasured(text: str) -> tuple[str, ...]:
    """The names in a text such as `"contamination"`, with commas between; an empty text has none.

    Raises:
        ValueError: nothing of that name has to be measured.
    """
    names = tuple(filter(None, map(str.strip, text.split(","))))
    for name in names:
        if name not in MEASURED:
            hint = did_you_mean(name, MEASURED)
            raise ValueError(f"--accept-unmeasured: expected {', '.join(MEASURED)}, found {name!r}{hint}")
    return names


def _parsed(part: str) -> Limit:
    found = _LIMIT.match(part)
    hint = "expected NAME<=BOUND or NAME>=BOUND, separated by commas"
    if not found:
        raise ValueError(f"--limits: {part.strip()!r}: {hint}")
    name, sign, bound = found.groups()
    if name not in LIMIT_METRICS:
        hint = did_you_mean(name, LIMIT_METRICS)
        raise ValueError(f"--limits: no metric {name!r}{hint}; there are {', '.join(LIMIT_METRICS)}")
    value = number_in(bound)
    if value is None or not math.isfinite(value):
        raise ValueError(f"--limits: {part.strip()!r}: {hint}")
    return Limit(name, sign, value)
