"""Rule 10: whether the gain is also there on texts that no verdict has looked at before.

The test split is looked at every night, and the best of thirty nights is in part the luckiest on these very
texts. So the last rule uses a split that `evaluate` scores as well and that nobody reads, shows or logs
until a challenger has passed everything else; a verdict that fails before does not open the file. What luck
on the test split lets through, this rule lets through once in twenty times. It says nothing of the seed's
luck, which is the same on both splits.

The rule is one-sided: the 95 % lower bound of the gain (`level`; the 5 % quantile of the bootstrap) is
above 0. The test split has shown which sign to look for, so the error need not be spent on the other side.
The margin is not asked for again: the split has half of the test's characters, and the spread of a gain
there is 1.4 times the test's, so that a true gain of three times the test's spread is confirmed in 68 of
100 cases by this rule and in 56 by the two-sided one (in 98 if any gain above 0 were enough, but then luck
passes every other time). A gain of 1 % in a set as large as the demo's is many times that spread.

Texts that the challenger was trained on confirm nothing, and are not looked at. A champion that has read
them looks better than it is there, which makes the rule harder and never easier.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from yanmo.common.errors import DataError
from yanmo.promote.gate import findings, sentences
from yanmo.promote.gate.evaluation import CONTAMINATION, Evaluation, evaluate_command, joined_scores
from yanmo.promote.gate.guards import found
from yanmo.promote.gate.spread import CHALLENGER, CHAMPION, CHARACTERS, Floats, drawn_gains
from yanmo.promote.gate.verdict import Check, Rules, Verdict, Words
from yanmo.store.output import read_json

log = logging.getLogger(__name__)
FILES = "confirmation"
"""The beginning of the names of the files with the scores."""
_SPLIT_FILES = "confirm-*.parquet"


def confirmed(
    verdict: Verdict,
    challenger: Evaluation,
    champion: Evaluation,
    rules: Rules,
    without: str,
) -> Verdict:
    """The verdict after rule 10; one that does not promote is returned as it is, and nothing is read.

    Args:
        without: what happens where there is no confirmation split.
    """
    if not verdict.promote:
        return verdict
    unscored = [e for e in (challenger, champion) if not e.output.entries(f"{FILES}-*.parquet")]
    if len(unscored) == 2:
        return _without_split(verdict, challenger, without)
    if unscored:
        command = evaluate_command(
            unscored[0].model.manifest.key,
            challenger.summary["conditions"],
            is_champion=unscored[0] is champion,
        )
        return _refused(verdict, findings.unscored(str(unscored[0].output), command))
    seen = _share_read(challenger)
    if seen is not None and seen > rules.max_contamination:
        return _refused(verdict, findings.read_before(seen))
    by_champion = _share_read(champion)
    if by_champion:
        log.warning(
            "%.2f %% of the confirmation texts are in the champion's training text, which favours it: "
            "the rule is harder than it should be, until there is a new champion",
            100 * by_champion,
        )
    gain = gain_of(joined_scores(challenger, champion, FILES), rules)
    finding = findings.on_confirmation(gain, rules.level)
    if gain["lowest"] is None or not gain["lowest"] > 0:
        return replace(_refused(verdict, finding), confirmation=gain)
    return replace(
        verdict,
        sentence=sentences.confirmed(verdict.sentence, finding),
        checks=(*verdict.checks, Check("confirmed", True, findings.CONFIRMED, finding)),
        confirmation=gain,
    )


def gain_of(scores: Mapping[str, Floats], rules: Rules) -> dict[str, Any]:
    """The gain on these scores, mean over genres, and its one-sided lower bound; None if nobody knows it."""
    sums = {genre: values.sum(axis=0) for genre, values in scores.items()}
    mine, theirs = (
        float(np.mean([s[who] / s[CHARACTERS] for s in sums.values()])) for who in (CHALLENGER, CHAMPION)
    )
    drawn = drawn_gains(scores, rules.draws, rules.seed)
    lowest = np.quantile(np.mean(list(drawn.values()), axis=0), 1 - rules.level) if drawn else None
    return {
        "documents": sum(map(len, scores.values())),
        "challenger": round(mine, 4),
        "champion": round(theirs, 4),
        "bits": round(theirs - mine, 4),
        "share": round((theirs - mine) / theirs, 5),
        "lowest": None if lowest is None else round(float(lowest), 4),
    }


def _without_split(verdict: Verdict, challenger: Evaluation, without: str) -> Verdict:
    """The verdict where neither was scored on such a split: it says so first."""
    finding = findings.UNSCORED if _has_split(challenger) else findings.NO_SPLIT
    if without == "refuse":
        return _refused(verdict, finding)
    return replace(
        verdict,
        sentence=sentences.unconfirmed(finding, verdict.sentence),
        checks=(*verdict.checks, Check("confirmed", None, findings.CONFIRMED, finding)),
    )


def _has_split(evaluation: Evaluation) -> bool:
    try:
        evaluation_set = evaluation.output.input("evaluation_set")
    except DataError:
        return False
    return evaluation_set is not None and bool(evaluation_set.entries(_SPLIT_FILES))


def _share_read(evaluation: Evaluation) -> float | None:
    """Share of the split's texts found in the model's training text; None where nobody could look."""
    if CONTAMINATION not in evaluation.output.manifest.references:
        return None
    part = evaluation.output.part(CONTAMINATION)
    return found(read_json(part, "contamination.json"), "confirmation", "share")


def _refused(verdict: Verdict, finding: Words) -> Verdict:
    return replace(
        verdict,
        outcome="not promoted",
        sentence=sentences.not_confirmed(finding, verdict.sentence),
        checks=(*verdict.checks, Check("confirmed", False, findings.CONFIRMED, finding)),
    )
