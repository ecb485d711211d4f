"""How often promote's gate is wrong, with the noise of seeds in it, on the per-document bits of real models.

    python benchmarks/gate.py --store STORE --evaluations evaluate/KEY evaluate/KEY ... [--count 12] [--warm]

The evaluations are of models of one recipe that differ by their seed (`yanmo train --seed 2 --pointer none`,
`yanmo evaluate --model train/KEY --pointer none`). One of the models has twins (`yanmo train --twins 12`).
Every verdict is promote's own (`judge` of promote/gate/rules.py, default rules about bits; `limits` are left
out, as nothing here is known of samples).

    sigma           standard deviation of the models over their seeds, on the test documents, as a share of
                    the bits
    s               what a channel measures: of --count twins, drawn with the standard deviation of the twins
    a night         champion and challenger are two of the real models, with their real differences in every
                    document and genre; the level of each is drawn: normal, with sigma
    month           30 nights without progress against one champion and one s: is it ever changed?
    gain of X %     the recipe is truly better by X % of the bits: is it promoted within 3 nights?

Without --warm each night trains from nothing, so that the champion's level is drawn once a month and each
challenger's once a night. With --warm each night goes on from the champion: only challengers scatter.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from yanmo.promote.config import PromoteConfig
from yanmo.promote.gate.evaluation import Evaluation, joined_scores, open_evaluation
from yanmo.promote.gate.noise import Noise, noise_of
from yanmo.promote.gate.rules import asked_of, judge, mean_of
from yanmo.promote.gate.spread import CHALLENGER, CHAMPION, CHARACTERS, Floats
from yanmo.promote.gate.verdict import ASSUMED_NOISE, Evidence, Rules
from yanmo.promote.work import rules_of
from yanmo.store.opening import open_store
from yanmo.store.output import find_by_digits

Scores = dict[str, Floats]
Generator = np.random.Generator
NIGHTS, TRIES = 30, 3
SHARE = 0.5
"""Of the steps, that a twin has: for the cost."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True)
    parser.add_argument("--evaluations", nargs="+", required=True, help="two or more, as evaluate/KEY")
    parser.add_argument("--count", type=int, default=12, help="twins that the channel trains")
    parser.add_argument("--warm", action="store_true", help="each night goes on from the champion")
    parser.add_argument("--months", type=int, default=1000)
    given = parser.parse_args()
    models = opened(given.store, given.evaluations)
    pairs = {
        (a, b): joined_scores(models[a], models[b]) for a, b in itertools.permutations(range(len(models)), 2)
    }
    if not pairs:
        parser.error("--evaluations: give two or more")
    sigma = sd_of([model.mean for model in models])
    noise = next((found for m in models if (found := noise_of(m.model, None))), None)
    gates = {
        "least gain": Gate(None, 0.0, given.warm),
        "assumed": Gate(None, ASSUMED_NOISE, given.warm),
    }
    print(f"{len(models)} models, sigma {100 * sigma:.3f} %")
    if noise:
        cost = given.count * SHARE
        print(f"{noise.twins} twins, {100 * noise.sd:.3f} %; {given.count} of them cost {cost:g} nights")
        gates["measured"] = Gate(given.count, noise.sd, given.warm)
    print(f"{'':<28}" + "".join(f"{name:>16}" for name in gates))
    for gain in (0.0, 0.005, 0.01, 0.02):
        nights = TRIES if gain else NIGHTS
        what = f"gain of {100 * gain:g} %, {nights} nights" if gain else f"month of {nights} nights"
        draws = [np.random.default_rng([i, nights]) for i in range(given.months)]
        show(what, [[month(g, pairs, sigma, gain, nights, d) for d in draws] for g in gates.values()])


def show(what: str, found: list[list[bool]]) -> None:
    """A row: the share of months of each gate."""
    print(f"{what:<28}" + "".join(f"{100 * np.mean(each):>14.1f} %" for each in found), flush=True)


def opened(uri: str, names: list[str]) -> list[Evaluation]:
    """The evaluations of a store.

    Raises:
        SystemExit: one is not there.
    """
    found = []
    for name in names:
        output = find_by_digits(open_store(uri), "evaluate", name.removeprefix("evaluate/"))
        if output is None:
            raise SystemExit(f"{uri} has no {name}: expected evaluate/KEY, as `yanmo store ls` shows it")
        found.append(open_evaluation(output))
    return found


def sd_of(values: list[float]) -> float:
    """Standard deviation as a share of the mean."""
    return float(np.std(values, ddof=1) / np.mean(values))


def gain_of(scores: Scores) -> float:
    """The challenger's gain as a share of the champion's bits, mean over genres."""
    sums = [values.sum(axis=0) for values in scores.values()]
    mine, theirs = (np.mean([s[who] / s[CHARACTERS] for s in sums]) for who in (CHALLENGER, CHAMPION))
    return float((theirs - mine) / theirs)


def improved(scores: Scores, gain: float) -> Scores:
    """The challenger's bits all scaled by one factor, such that it gains this share."""
    factor = (1 - gain) / (1 - gain_of(scores))
    result = {genre: values.copy() for genre, values in scores.items()}
    for values in result.values():
        values[:, CHALLENGER] *= factor
    return result


class Gate:
    """promote's rules about bits, with what it knows of the seed."""

    def __init__(self, twins: int | None, sd: float, is_warm: bool) -> None:
        """Args:
        twins: how many a month measures; None assumes `sd`, and 0 of it asks for the least gain alone.
        """
        # A tenth of the stage's draws of documents: enough for the ends of an interval, over 1,000 verdicts.
        self.rules: Rules = replace(
            rules_of(PromoteConfig()), assumed_noise=sd, draws=500, limits=(), must_measure=False
        )
        self._twins, self._sd, self.is_warm = twins, sd, is_warm

    def measured(self, draw: Generator) -> Evidence:
        """What a month's twins say."""
        if self._twins is None:
            return Evidence(from_champion=self.is_warm)
        sd = sd_of((1 + self._sd * draw.normal(size=self._twins)).tolist())
        noise = Noise(sd=sd, df=self._twins - 1, is_warm=self.is_warm, twins=self._twins)
        return Evidence(noise=noise)

    def reaches(self, gain: float, evidence: Evidence) -> bool:
        """Whether rule 8 would hold of this gain."""
        asked, mean = asked_of(self.rules, evidence), mean_of(evidence.before, gain)
        return gain >= asked["margin"] or (mean is not None and mean >= asked["margin_of_mean"])

    def promotes_gain(self, gain: float, scores: Callable[[], Scores], evidence: Evidence) -> bool:
        """Whether a challenger of this gain becomes champion; `scores` draws the differences of documents.

        Below the margin there is no promotion, so the bootstrap need not be drawn: 20 times as fast.
        """
        return self.reaches(gain, evidence) and self.promotes(improved(scores(), gain), evidence)

    def promotes(self, scores: Scores, evidence: Evidence) -> bool:
        """Whether the challenger of these scores would become champion."""
        return judge(scores, self.rules, evidence).promote


Pairs = dict[tuple[int, int], Scores]
"""(challenger, champion) -> the scores of both."""


def month(gate: Gate, pairs: Pairs, sigma: float, gain: float, nights: int, draw: Generator) -> bool:
    """Whether the champion changes in so many nights, each truly better by `gain`."""
    evidence, real = gate.measured(draw), list(pairs.values())
    champion = 0.0 if gate.is_warm else draw.normal(0, sigma)
    for challenger in draw.normal(0, sigma, nights):
        found = 1 - (1 - gain) * (1 + challenger) / (1 + champion)
        if gate.promotes_gain(found, lambda: real[int(draw.integers(len(real)))], evidence):
            return True
        evidence = replace(evidence, before=(*evidence.before, round(found, 5)))
    return False


if __name__ == "__main__":
    main()
