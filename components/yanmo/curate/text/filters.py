"""Which filter drops a document. A filter has a name, and in each set of filters a threshold."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from yanmo.chinese.code_spans import between, code_spans
from yanmo.chinese.text_runs import han_only
from yanmo.curate.text.cleaning import Cleaned
from yanmo.curate.text.filter_sets import FILTERS, REASONS, Limits
from yanmo.curate.text.normalize import HAN, LACUNA, PRIVATE, Normalized
from yanmo.curate.text.plugin_filters import PluginFilter
from yanmo.curate.text.web_measures import web_measures

Floats = npt.NDArray[np.float64]
_MANY_HAN = 2000
"""Han characters that are a text whatever is beside them, as in a reference of SQL."""


@dataclass(frozen=True, kw_only=True)
class FilterRules:
    """Which filters apply to a document, by its genre."""

    limits: Mapping[str, Limits]
    """Set -> filter -> threshold."""
    sets: Mapping[str, str]
    """Genre -> name of its set of filters; `*` is every other genre, by default with the set `verse`."""
    plugins: tuple[PluginFilter, ...] = ()
    """Filters of installed packages, which see every text that no filter here drops."""

    def set_of(self, genre: str) -> str:
        """Name of the set of filters for `genre`."""
        return self.sets.get(genre) or self.sets.get("*", "verse")


@dataclass(frozen=True)
class Verdicts:
    """What the filters decided about each document of a batch. Parallel lists."""

    reasons: list[str]
    """Name of the filter that drops the document; "" if none does."""
    values: list[float]
    """What that filter measured."""


def judge(
    cleaned: Sequence[Cleaned], normalized: Normalized, genres: Sequence[str], rules: FilterRules
) -> Verdicts:
    """Apply all filters to all documents; if several drop one, the first in the order of REASONS counts."""
    names = sorted(rules.limits)
    position = {genre: names.index(rules.set_of(genre)) for genre in set(genres)}
    sets = np.array([position[genre] for genre in genres], dtype=np.int64)
    measures = _measures(cleaned, normalized)
    asking = {name for name, limits in rules.limits.items() if limits.keys() - set(measures)}
    _add_web_measures(measures, normalized.texts, [names[s] for s in sets], asking)
    reasons, values = [""] * len(cleaned), [0.0] * len(cleaned)
    for reason in reversed(REASONS):
        if reason not in measures:
            continue
        sign = FILTERS[reason][0]
        limits = np.array([rules.limits[name].get(reason, sign * np.inf) for name in names])[sets]
        for i in np.flatnonzero(sign * measures[reason] > sign * limits).tolist():
            reasons[i], values[i] = reason, float(measures[reason][i])
    for i in [i for i, reason in enumerate(reasons) if rules.plugins and not reason]:
        for each in rules.plugins:
            value = each.measured(normalized.texts[i], genres[i])
            if each.drops(value):
                reasons[i], values[i] = each.reason, value
                break
    return Verdicts(reasons, values)


def _measures(cleaned: Sequence[Cleaned], normalized: Normalized) -> dict[str, Floats]:
    """Filter -> what it measures in each document, for the filters that every set has.

    The length of an empty text is -1, below every minimum.
    """
    characters = normalized.characters
    whole = np.maximum(characters, 1)
    han = normalized.counts[:, HAN]
    raw = [(c.has_markup, c.is_stub, c.is_garbled, c.private_use, c.lost) for c in cleaned]
    markup, stub, garbled, private, lost = np.array(raw, dtype=np.float64).reshape(-1, 5).T
    private_use = normalized.counts[:, PRIVATE] + private
    lacuna = normalized.counts[:, LACUNA] + lost
    return {
        "markup": markup,
        "stub": stub,
        "garbled": garbled,
        "too_short": np.where(characters == 0, -1.0, han),
        "not_han": np.where(
            (han >= _MANY_HAN) | (characters == 0), 1.0, _shares_of_han(normalized.texts, han / whole)
        ),
        "private_use": private_use / whole,
        "lacuna": lacuna / whole,
        "too_long": characters.astype(np.float64),
    }


def _shares_of_han(texts: Sequence[str], shares: Floats) -> Floats:
    """Return the share of Han characters in each text, or in its prose without code if larger.

    Notes on algorithms are four fifths code, and are notes in Chinese.
    """
    for i, text in enumerate(texts):
        if "```" in text or "~~~" in text:
            prose = "".join(part for part, is_code in between(text, code_spans(text)) if not is_code)
            shares[i] = max(shares[i], len(han_only([prose])[0]) / max(1, len("".join(prose.split()))))
    return shares


def other_script(text: str) -> str:
    """Return the script of most letters at a text's beginning but Han: `Latin`; "" without any."""
    scripts = Counter[str]()
    for c, count in Counter(text[:2000]).items():
        name = unicodedata.name(c, "").partition(" ")[0] if c.isalpha() else ""
        if name and name != "CJK":
            scripts[name] += count
    return scripts.most_common(1)[0][0].capitalize() if scripts else ""


def _add_web_measures(
    measures: dict[str, Floats], texts: Sequence[str], sets: Sequence[str], asking: set[str]
) -> None:
    """Add the measures of filters that only some sets have; other documents get NaN, which is kept."""
    for i, name in enumerate(sets):
        if name in asking and texts[i]:
            for filter_name, value in web_measures(texts[i], name).items():
                column = measures.setdefault(filter_name, np.full(len(texts), np.nan))
                column[i] = value
