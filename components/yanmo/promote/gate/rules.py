"""All rules by which a challenger becomes champion.

Is the comparison worth anything?
 1. Not more than `max_contamination` of the evaluated documents are in the training text; else the verdict
    is "not valid", whatever the bits are. Where that could not be measured, the sentence says so first, and
    nothing is promoted unless that is accepted by name.

Is the challenger fit to be champion, by itself?
 2. It has not collapsed: its samples repeat themselves, or are empty, no more than `limits` allow.
 3. Every other metric named in `limits` (copying, rhyme, ...) is within its bound. A metric that was not
    measured is not within its bound.
 4. It was not rolled back before: what a person has taken down, no night promotes again.

Is it better?
 5. Where there is no champion, a challenger that passes 1 to 4 becomes it.
 6. It is another model than the champion.
 7. The gain (champion's bits per character minus the challenger's, mean over genres) is above 0 beyond doubt:
    so is the lower end of its 95 % interval, by a paired bootstrap over documents (spread.py).
 8. The gain is at least the margin: `min_gain` of the champion's bits, and what the seed alone reaches in no
    more than `month_error` of the months (noise.py). Or the mean gain of the last three nights of this recipe
    against this champion is at least 0.816 of that, tonight's being `min_gain` or more.
 9. No genre is worse by more than `max_genre_loss` bits.

Was it luck on these very documents?
10. The gain is above 0 on the confirmation split too, which is looked at only now (confirmation.py).

The bootstrap draws documents (those of one author or work together), not models: it says whether these two
models differ on such documents, not whether the recipe would win again with another seed. benchmarks/gate.py
simulates how often equal models replace each other as champion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from yanmo.common.bootstrap import interval
from yanmo.promote.gate import findings, sentences
from yanmo.promote.gate.limits import Limit
from yanmo.promote.gate.noise import MEAN_SHARE, RUN, Noise, margin, told_apart
from yanmo.promote.gate.spread import (
    CHALLENGER,
    CHAMPION,
    CHARACTERS,
    FEW_DOCUMENTS,
    Floats,
    drawn_gains,
    grouped,
)
from yanmo.promote.gate.verdict import Check, Evidence, Outcome, Rules, Verdict, Words

COLLAPSE = ("distinct_2", "written_share", "repeated_share")
"""The metrics of rule 2."""
ABOUT_ONE = (
    *("contamination_measured", "not_contaminated"),
    *("not_collapsed", "within_limits", "not_rolled_back", "another_model"),
)
"""Checks that a challenger is fit by itself and is another model than the champion."""


_NO_EVIDENCE = Evidence()


def first_champion(mean: float, rules: Rules, evidence: Evidence = _NO_EVIDENCE) -> Verdict:
    """Rules 1 to 5: the verdict where there is no champion.

    Args:
        mean: the challenger's bits per character, mean over genres.
    """
    checks = fitness(rules, evidence)
    outcome = _outcome(checks)
    if outcome == "promoted":
        return Verdict(outcome, _with_caveat(sentences.first(mean), checks), checks)
    return Verdict(outcome, sentences.refused(_failed(checks)), checks)


def judge(scores: Mapping[str, Floats], rules: Rules, evidence: Evidence = _NO_EVIDENCE) -> Verdict:
    """Rules 1 to 4 and 6 to 9. A pure function of its arguments.

    Args:
        scores: genre -> array of shape (documents, 4): characters, challenger's bits, champion's bits, group
            (spread.py); at least one genre, and one document in each.
    """
    drawn = drawn_gains(scores, rules.draws, rules.seed)
    genres = {
        genre: _genre(values, drawn[genre] if drawn else None, rules) for genre, values in scores.items()
    }
    gain = _gain(genres, np.mean(list(drawn.values()), axis=0) if drawn else None, rules)
    sure = gain["interval"] is not None and gain["interval"][0] > 0
    noise = asked_of(rules, evidence)
    noise["mean"] = mean = mean_of(evidence.before, gain["share"])
    by_mean = mean is not None and mean >= noise["margin_of_mean"] and gain["share"] >= rules.min_gain
    enough = by_mean or gain["share"] >= noise["margin"]
    checks = (
        *fitness(rules, evidence),
        Check(
            "another_model", not evidence.same_model, findings.ANOTHER, findings.which(evidence.same_model)
        ),
        Check("beyond_doubt", sure, findings.DOUBT, findings.sure(gain, rules.level)),
        Check("large_enough", enough, findings.least(noise), findings.size(gain, mean)),
        _no_genre_lost(genres, rules),
    )
    outcome = _outcome(checks)
    if outcome == "promoted":
        sentence = _with_caveat(sentences.with_noise(sentences.promoted(gain, rules, noise), noise), checks)
        return Verdict(outcome, sentence, checks, gain, genres, noise=noise)
    failed = _failed(checks)
    sentence = sentences.refused(failed, gain, rules, noise)
    if failed.name == "large_enough" and gain["bits"] > 0:  # any other reason does not rest on the noise
        sentence = sentences.with_noise(sentence, noise)
    return Verdict(outcome, sentence, checks, gain, genres, noise=noise)


def fitness(rules: Rules, evidence: Evidence) -> tuple[Check, ...]:
    """Rules 1 to 4: what does not depend on any champion."""
    return (
        _contamination(rules, evidence),
        *(_within(limit, evidence.guard_metrics.get(limit.metric)) for limit in rules.limits),
        Check(
            "not_rolled_back",
            not evidence.rolled_back,
            findings.NEW,
            findings.taken_down(evidence.rolled_back),
        ),
    )


def _contamination(rules: Rules, evidence: Evidence) -> Check:
    share = evidence.contamination
    if share is None:
        passed = False if rules.must_measure else None
        return Check(
            "contamination_measured", passed, findings.clean(rules.max_contamination), findings.share(None)
        )
    rule, finding = findings.clean(rules.max_contamination), findings.share(share)
    return Check("not_contaminated", share <= rules.max_contamination, rule, finding)


def asked_of(rules: Rules, evidence: Evidence) -> dict[str, Any]:
    """The margin and how it was made, as the verdict records it."""
    noise = evidence.noise or Noise(sd=rules.assumed_noise, df=math.inf, is_warm=evidence.from_champion)
    known = [noise]
    if noise.is_measured:  # short twins may scatter less than whole trainings
        known.append(Noise(sd=rules.least_noise, df=math.inf, is_warm=noise.is_warm))
    margins = [margin(n, rules.month_error, rules.nights_per_month) if n.sd else 0.0 for n in known]
    made = max(margins)
    of_mean = max(round(MEAN_SHARE * made, 6), rules.min_gain)
    believed = max(known, key=lambda n: n.sd)
    return {
        "measured": noise.is_measured,
        "sd": noise.sd,
        "twins": noise.twins,
        "df": noise.df if math.isfinite(noise.df) else None,
        "source": noise.source,
        "from_champion": noise.is_warm,
        "month_error": rules.month_error,
        "nights_per_month": rules.nights_per_month,
        "least_sd": rules.least_noise if noise.is_measured else 0.0,
        "margin_sd": known[margins.index(made)].sd,
        "of_noise": round(made, 6),
        "min_gain": rules.min_gain,
        "margin": max(round(made, 6), rules.min_gain),
        "margin_of_mean": of_mean,
        "told_apart": round(told_apart(believed, of_mean), 6),
    }


def mean_of(before: tuple[float, ...], tonight: float) -> float | None:
    """The mean gain of the last three nights; None where there are not so many."""
    nights = (*before, tonight)[-RUN:]
    return round(float(np.mean(nights)), 5) if len(nights) == RUN else None


def _within(limit: Limit, value: float | None) -> Check:
    name = "not_collapsed" if limit.metric in COLLAPSE else "within_limits"
    return Check(
        name, value is not None and limit.holds(value), findings.limit(limit), findings.number(value)
    )


def _no_genre_lost(genres: Mapping[str, dict[str, Any]], rules: Rules) -> Check:
    worse = {name: g for name, g in genres.items() if -g["gain"] > rules.max_genre_loss}
    return Check("no_genre_lost", not worse, findings.no_worse(rules.max_genre_loss), findings.worse(worse))


def _with_caveat(sentence: Words, checks: tuple[Check, ...]) -> Words:
    """The sentence of a promotion, after a note on what was not measured.

    A refusal needs none: contamination only makes a challenger look better.
    """
    return sentences.unsearched(sentence) if any(check.passed is None for check in checks) else sentence


def _failed(checks: tuple[Check, ...]) -> Check:
    """The first rule that the challenger failed."""
    return next(check for check in checks if check.passed is False)


def _outcome(checks: tuple[Check, ...]) -> Outcome:
    if all(check.passed is not False for check in checks):
        return "promoted"
    return "not valid" if _failed(checks).name == "not_contaminated" else "not promoted"


def _per_character(values: Floats, column: int) -> float:
    return float(values[:, column].sum() / values[:, CHARACTERS].sum())


def _genre(values: Floats, drawn: Floats | None, rules: Rules) -> dict[str, Any]:
    challenger, champion = _per_character(values, CHALLENGER), _per_character(values, CHAMPION)
    groups = len(grouped(values))
    return {
        "documents": len(values),
        "groups": groups,
        "few_documents": groups < FEW_DOCUMENTS,
        "challenger": round(challenger, 4),
        "champion": round(champion, 4),
        "gain": round(champion - challenger, 4),
        "interval": _interval(drawn if groups > 1 else None, rules),
    }


def _gain(genres: Mapping[str, dict[str, Any]], drawn: Floats | None, rules: Rules) -> dict[str, Any]:
    challenger, champion = (
        float(np.mean([g[who] for g in genres.values()])) for who in ("challenger", "champion")
    )
    return {
        "challenger": round(challenger, 4),
        "champion": round(champion, 4),
        "bits": round(champion - challenger, 4),
        "share": round((champion - challenger) / champion, 5),
        "interval": _interval(drawn, rules),
    }


def _interval(drawn: Floats | None, rules: Rules) -> list[float] | None:
    return None if drawn is None else [round(v, 4) for v in interval(drawn, rules.level)]
