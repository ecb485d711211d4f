"""How often promote's gate is wrong, with the noise of seeds in it, on the per-document bits of real models.

    python benchmarks/gate.py --models FULL.parquet --twins SHORT.parquet [--count 12] [--warm]

FULL and SHORT are tables of benchmarks/seed_noise.py: models of one recipe that differ by their seed, and
the recipe's twins at a share of the steps. Every verdict is promote's own (`judge` of promote/gate/rules.py,
default rules about bits; `limits` are left out, as nothing here is known of samples).

    sigma           standard deviation over the seeds of FULL, on its test documents, as a share of the bits
    s               what a channel measures: of --count twins, drawn with the standard deviation that SHORT's
                    twins have on the validation split
    a night         champion and challenger are two of the real models, with their real differences in every
                    document and genre; the level of each is drawn: normal, with sigma
    month           30 nights without progress against one champion and one s: is it ever changed?
    gain of X %     the recipe is truly better by X % of the bits: is it promoted within 3 nights?

Without --warm each night trains from nothing, so that the champion's level is drawn once a month and each
challenger's once a night. With --warm each night goes on from the champion: only challengers scatter.
--likeness is the correlation of a night's level with the night before: nights that all have one seed, on a
text that grows, are alike. A last row draws no level at all: nights are the real models as they are, in
random order.

With --chain A B C a month grows: A, B and C are tables of models that were really trained one from another,
each on the text as it was then (A's models go on from the champion, B's from one of A, ...; docs/gate.md). A
night's model is one of the next table after the champion's, its level drawn; a promotion moves on to the
next table, and behind the last one there is no progress any more. It prints how often the champion changes,
and how often to a model whose true level (the mean of its table) is no better than the champion's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from yanmo.promote.config import PromoteConfig
from yanmo.promote.gate.noise import Noise
from yanmo.promote.gate.rules import asked_of, judge, mean_of
from yanmo.promote.gate.spread import CHALLENGER, CHAMPION, CHARACTERS, Floats
from yanmo.promote.gate.verdict import Evidence, Rules
from yanmo.promote.work import rules_of

Scores = dict[str, Floats]
Generator = np.random.Generator
NIGHTS, TRIES = 30, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--twins", type=Path, required=True)
    parser.add_argument("--count", type=int, default=12, help="twins that the channel trains")
    parser.add_argument("--share", type=float, default=0.5, help="of the steps that a twin has, for the cost")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--likeness", type=float, default=0.0, help="correlation of neighbouring nights")
    parser.add_argument("--chain", type=Path, nargs="*", default=[], help="tables of a month that grows")
    parser.add_argument("--months", type=int, default=2000)
    options = parser.parse_args()
    models, twins = read_models(options.models), sd_of(valid_bits(options.twins))
    sigma = sd_of([m.mean for m in models])
    cost = options.count * options.share
    print(
        f"{len(models)} models, sigma {100 * sigma:.3f} %; twins {100 * twins:.3f} %; {options.count} twins "
        f"cost {cost:g} nights, {100 * cost / NIGHTS:.1f} % of a month of them"
    )
    pairs = list(real_pairs(models))
    gates = {
        "0.3 % (before)": Gate(None, 0.0, options.warm),
        "measured": Gate(options.count, twins, options.warm),
        "assumed": Gate(None, PromoteConfig.assumed_noise, options.warm),
    }
    print(f"{'':<28}" + "".join(f"{name:>16}" for name in gates))
    for gain in (0.0, 0.005, 0.01, 0.02):
        nights = TRIES if gain else NIGHTS
        what = f"gain of {100 * gain:g} %, {nights} nights" if gain else f"month of {nights} nights"
        found = [
            np.mean(
                [
                    month(
                        gate,
                        pairs,
                        Luck(sigma, options.likeness),
                        gain,
                        nights,
                        np.random.default_rng([i, nights]),
                    )
                    for i in range(options.months)
                ]
            )
            for gate in gates.values()
        ]
        print(f"{what:<28}" + "".join(f"{100 * v:>14.1f} %" for v in found), flush=True)
    found = [
        np.mean([real_month(gate, models, np.random.default_rng([i, 7])) for i in range(options.months)])
        for gate in gates.values()
    ]
    print(f"{'month of the real models':<28}" + "".join(f"{100 * v:>14.1f} %" for v in found))
    if options.chain:
        print_growing(gates, options.chain, Luck(sigma, options.likeness), options.months)


def print_growing(gates: dict[str, Gate], tables: list[Path], luck: Luck, count: int) -> None:
    """What becomes of months that grow."""
    chain = [read_models(path) for path in tables]
    levels = [float(np.mean([m.mean for m in models])) for models in chain]
    steps = ", ".join(f"{100 * (1 - b / a):+.2f} %" for a, b in pairwise(levels))
    print(f"chain of {len(chain)} texts; true gains from one to the next: {steps}")
    for name, gate in gates.items():
        months = [growing_month(gate, chain, luck, np.random.default_rng([i, 11])) for i in range(count)]
        changes, wrong = np.mean(months, axis=0)
        any_wrong = np.mean([w > 0 for _, w in months])
        print(
            f"  {name:<26}{changes:>6.2f} changes a month, {wrong:.3f} of them wrong, in "
            f"{100 * any_wrong:.1f} % of months"
        )


@dataclass(frozen=True)
class Model:
    """One trained model: genre -> (documents, 2): characters and bits."""

    scores: Scores

    @property
    def mean(self) -> float:
        """Bits per character, mean over genres."""
        return float(np.mean([v[:, 1].sum() / v[:, 0].sum() for v in self.scores.values()]))


def read_models(path: Path) -> list[Model]:
    """The models of a table, one a seed."""
    table = pq.read_table(path)
    genres = np.array(table["genre"].to_pylist())
    characters = table["characters"].to_numpy().astype(np.float64)
    found = []
    for name in table.schema.names:
        if name.startswith("seed "):
            values = np.stack([characters, table[name].to_numpy().astype(np.float64)], 1)
            found.append(Model({g: values[genres == g] for g in dict.fromkeys(genres.tolist())}))
    return found


def valid_bits(path: Path) -> list[float]:
    """Bits per character of the validation split, mean over genres, of each seed of a table."""
    said: dict[str, Any] = json.loads((pq.read_schema(path).metadata or {})[b"yanmo.seeds"])
    return [float(seed["valid"]["mean"]) for seed in said.values()]


def sd_of(values: list[float]) -> float:
    """Standard deviation as a share of the mean."""
    return float(np.std(values, ddof=1) / np.mean(values))


def paired(challenger: Model, champion: Model) -> Scores:
    """As promote pairs two evaluations."""
    return {
        genre: np.column_stack([values, champion.scores[genre][:, 1], np.arange(len(values))])
        for genre, values in challenger.scores.items()
    }


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
            rules_of(PromoteConfig(assumed_noise=sd)), draws=500, limits=(), must_measure=()
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


@dataclass(frozen=True)
class Luck:
    """How levels are drawn."""

    sigma: float
    likeness: float = 0.0
    """Correlation of a night's luck with that of the night before."""

    def nights(self, number: int, draw: Generator) -> Floats:
        """Levels of so many nights, as shares."""
        found = draw.normal(0, self.sigma, number)
        for i in range(1, number):
            found[i] = self.likeness * found[i - 1] + np.sqrt(1 - self.likeness**2) * found[i]
        return found


def month(gate: Gate, pairs: list[Scores], luck: Luck, gain: float, nights: int, draw: Generator) -> bool:
    """Whether the champion changes in so many nights, each truly better by `gain`."""
    evidence = gate.measured(draw)
    champion = 0.0 if gate.is_warm else draw.normal(0, luck.sigma)
    for challenger in luck.nights(nights, draw):
        found = 1 - (1 - gain) * (1 + challenger) / (1 + champion)
        if gate.promotes_gain(found, lambda: pairs[int(draw.integers(len(pairs)))], evidence):
            return True
        evidence = replace(evidence, before=(*evidence.before, round(found, 5)))
    return False


def real_month(gate: Gate, models: list[Model], draw: Generator) -> bool:
    """Whether any of 30 real models of the recipe takes the place of another."""
    evidence = gate.measured(draw)
    champion, *nights = draw.integers(len(models), size=NIGHTS + 1).tolist()
    for challenger in nights:
        if challenger == champion:
            continue
        scores = paired(models[challenger], models[champion])
        found = gain_of(scores)
        if gate.reaches(found, evidence) and gate.promotes(scores, evidence):
            return True
        evidence = replace(evidence, before=(*evidence.before, round(found, 5)))
    return False


def growing_month(gate: Gate, chain: list[list[Model]], luck: Luck, draw: Generator) -> tuple[int, int]:
    """Changes of the champion in a month that grows along the chain, and those to what is truly no better.

    The champion's luck stays with it, and what goes on from it inherits it: then only the night's own counts.
    """
    levels = [float(np.mean([m.mean for m in models])) for models in chain]
    evidence, at, changes, wrong = gate.measured(draw), 0, 0, 0
    for challenger in luck.nights(NIGHTS, draw):
        to = min(at + 1, len(chain) - 1)
        gain = 1 - levels[to] / levels[at]
        found = 1 - (1 - gain) * (1 + challenger)

        def drawn(to: int = to, at: int = at) -> Scores:
            new, old = (models[int(draw.integers(len(models)))] for models in (chain[to], chain[at]))
            return paired(new, old if old is not new else chain[at][0])

        if gate.promotes_gain(found, drawn, evidence):
            changes, wrong, at = changes + 1, wrong + (gain <= 0), to
            evidence = replace(evidence, before=())
        else:
            evidence = replace(evidence, before=(*evidence.before, round(found, 5)))
    return changes, wrong


def real_pairs(models: list[Model]) -> Iterator[Scores]:
    """All ordered pairs of different models."""
    for a in models:
        yield from (paired(a, b) for b in models if b is not a)


if __name__ == "__main__":
    main()
