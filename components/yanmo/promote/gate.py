"""All rules by which a challenger becomes champion.

1. Where there is no champion, the challenger becomes it.
2. The challenger must be another model than the champion.
3. The gain (champion's bits per character minus the challenger's, mean over genres) must be above 0 beyond
   doubt: so must be the lower end of its 95 % interval, by a paired bootstrap over documents.
4. The gain must be at least `min_gain` of the champion's bits, so that the crown does not change hands for
   nothing.
5. No genre may be worse by more than `max_genre_loss` bits.

The bootstrap draws documents, not models: it says whether these two models differ on such documents, not
whether the recipe would win again with another seed. tests/components/promote/test_gate.py simulates how
often two equal models change the crown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from yanmo.common.bootstrap import generator_for, interval, resampled_sums

Floats = npt.NDArray[np.float64]
CHARACTERS, CHALLENGER, CHAMPION = 0, 1, 2
"""Columns of the paired scores of one genre."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The numbers in the rules; options of the stage."""

    min_gain: float
    max_genre_loss: float
    level: float
    draws: int
    seed: int


@dataclass(frozen=True)
class Check:
    """One rule, applied."""

    rule: str
    passed: bool
    finding: str


@dataclass(frozen=True)
class Verdict:
    """What the rules say."""

    promote: bool
    sentence: str
    checks: tuple[Check, ...]
    gain: dict[str, Any] | None
    """Mean over genres: bits, share, interval; None without a champion."""
    genres: dict[str, dict[str, Any]]
    """Genre -> bits per character of both, gain and its interval."""


def first_champion(mean: float) -> Verdict:
    """Rule 1: the verdict where there is no champion.

    Args:
        mean: the challenger's bits per character, mean over genres.
    """
    sentence = f"Promoted: the channel had no champion yet; {mean:.3f} bits per character over its genres."
    return Verdict(True, sentence, (Check("no champion yet", True, "the first model is champion"),), None, {})


def judge(scores: Mapping[str, Floats], rules: Rules, *, same_model: bool = False) -> Verdict:
    """Apply rules 2 to 5.

    Args:
        scores: genre -> array of shape (documents, 3): characters, challenger's bits, champion's bits.
        same_model: whether both evaluations are of one model.
    """
    drawn = {genre: _drawn_gains(values, rules, genre) for genre, values in scores.items()}
    genres = {genre: _genre(values, drawn[genre], rules) for genre, values in scores.items()}
    gain = _gain(genres, np.mean(list(drawn.values()), axis=0), rules)
    checks = (
        Check("another model", not same_model, "the champion itself" if same_model else "another model"),
        _beyond_doubt(gain, rules),
        _large_enough(gain, rules),
        _no_genre_lost(genres, rules),
    )
    promote = all(check.passed for check in checks)
    return Verdict(promote, _sentence(promote, checks, gain, rules), checks, gain, genres)


def _per_character(values: Floats, column: int) -> float:
    return float(values[:, column].sum() / values[:, CHARACTERS].sum())


def _drawn_gains(values: Floats, rules: Rules, genre: str) -> Floats:
    """The genre's gain in each draw of documents."""
    sums = resampled_sums(values, rules.draws, generator_for(rules.seed, genre))
    return np.asarray((sums[:, CHAMPION] - sums[:, CHALLENGER]) / sums[:, CHARACTERS])


def _genre(values: Floats, drawn: Floats, rules: Rules) -> dict[str, Any]:
    challenger, champion = _per_character(values, CHALLENGER), _per_character(values, CHAMPION)
    return {
        "documents": len(values),
        "challenger": round(challenger, 4),
        "champion": round(champion, 4),
        "gain": round(champion - challenger, 4),
        "interval": [round(v, 4) for v in interval(drawn, rules.level)] if len(values) > 1 else None,
    }


def _gain(genres: Mapping[str, dict[str, Any]], drawn: Floats, rules: Rules) -> dict[str, Any]:
    challenger, champion = (
        float(np.mean([g[who] for g in genres.values()])) for who in ("challenger", "champion")
    )
    return {
        "challenger": round(challenger, 4),
        "champion": round(champion, 4),
        "bits": round(champion - challenger, 4),
        "share": round((champion - challenger) / champion, 5),
        "interval": [round(v, 4) for v in interval(drawn, rules.level)],
    }


def _beyond_doubt(gain: Mapping[str, Any], rules: Rules) -> Check:
    low, high = gain["interval"]
    finding = f"{100 * rules.level:g} % interval {low:+.3f} to {high:+.3f} bits"
    return Check("gain above 0 beyond doubt", low > 0, finding)


def _large_enough(gain: Mapping[str, Any], rules: Rules) -> Check:
    finding = f"{100 * gain['share']:+.2f} % of {gain['champion']:.3f} bits"
    return Check(f"gain of at least {100 * rules.min_gain:g} %", gain["share"] >= rules.min_gain, finding)


def _no_genre_lost(genres: Mapping[str, dict[str, Any]], rules: Rules) -> Check:
    worse = {name: -g["gain"] for name, g in genres.items() if -g["gain"] > rules.max_genre_loss}
    finding = ", ".join(f"{name} by {loss:.3f} bits" for name, loss in worse.items()) or "none"
    return Check(f"no genre worse by more than {rules.max_genre_loss:g} bits", not worse, finding)


def _sentence(promote: bool, checks: tuple[Check, ...], gain: Mapping[str, Any], rules: Rules) -> str:
    low, high = gain["interval"]
    sure = f"{100 * rules.level:g} % interval {low:+.3f} to {high:+.3f} bits"
    against = f"{gain['challenger']:.3f} bits per character against the champion's {gain['champion']:.3f}"
    if promote:
        return (
            f"Promoted: {against}, a gain of {gain['bits']:.3f} bits or {100 * gain['share']:.2f} % "
            f"({sure}); no genre is worse by more than {rules.max_genre_loss:g} bits."
        )
    other, doubt, size, genres = checks
    if not other.passed:
        return "Not promoted: the challenger is the champion itself."
    if gain["bits"] <= 0:
        return f"Not promoted: no better than the champion: {against}."
    if not doubt.passed:
        return f"Not promoted: the gain may be luck: {against}, but the gain's {sure} includes 0."
    if not size.passed:
        return (
            f"Not promoted: the gain of {100 * gain['share']:.2f} % is below the {100 * rules.min_gain:g} % "
            f"asked for: {against}."
        )
    limit = f"at most {rules.max_genre_loss:g} is allowed"
    return f"Not promoted: better on average, but worse in {genres.finding} ({limit}): {against}."
