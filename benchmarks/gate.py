"""How often promote's gate is wrong, with the noise of seeds in it, on the per-document bits of real models.

    python benchmarks/gate.py --models FULL.parquet --twins SHORT.parquet [--count 16] [--warm]

FULL and SHORT are tables of benchmarks/seed_noise.py: models of one recipe that differ by their seed, and
the recipe's twins at a share of the steps. Every verdict is promote's own (yanmo.promote.gate.judge, default
rules about bits; `limits` are left out, as nothing here is known of samples).

    sigma           standard deviation over the seeds of FULL, on its test documents, as a share of the bits
    s               what a channel measures: of --count twins, drawn with the standard deviation that SHORT's
                    twins have on the validation split
    a night         champion and challenger are two of the real models, with their real differences in every
                    document and genre; the level of each is drawn: normal, with sigma
    month           30 nights without progress against one champion and one s: is it ever changed?
    gain of X %     the recipe is truly better by X % of the bits: is it promoted within 3 nights?

Without --warm each night trains from nothing, so that the champion's level is drawn once a month and each
challenger's once a night. With --warm each night goes on from the champion: only challengers scatter. A last
row draws no level at all: nights are the real models as they are, in random order.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from yanmo.promote.config import PromoteConfig
from yanmo.promote.gate import Evidence, Rules, asked_of, judge
from yanmo.promote.noise import Noise
from yanmo.promote.spread import CHALLENGER, CHAMPION, CHARACTERS, Floats
from yanmo.promote.work import rules_of

Scores = dict[str, Floats]
Generator = np.random.Generator
NIGHTS, TRIES = 30, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--twins", type=Path, required=True)
    parser.add_argument("--count", type=int, default=16, help="twins that the channel trains")
    parser.add_argument(
        "--share", type=float, default=0.25, help="of the steps that a twin has, for the cost"
    )
    parser.add_argument("--warm", action="store_true")
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
    for gain in (0.0, 0.003, 0.005, 0.01, 0.015, 0.02):
        nights = TRIES if gain else NIGHTS
        what = f"gain of {100 * gain:g} %, {nights} nights" if gain else f"month of {nights} nights"
        found = [
            np.mean(
                [
                    month(gate, pairs, sigma, gain, nights, options.warm, np.random.default_rng([i, nights]))
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
        self._twins, self._sd, self._is_warm = twins, sd, is_warm

    def measured(self, draw: Generator) -> Evidence:
        """What a month's twins say."""
        if self._twins is None:
            return Evidence()
        sd = sd_of((1 + self._sd * draw.normal(size=self._twins)).tolist())
        noise = Noise(sd=sd, df=self._twins - 1, is_warm=self._is_warm, twins=self._twins)
        return Evidence(noise=noise)

    def least(self, evidence: Evidence) -> float:
        """The margin."""
        return float(asked_of(self.rules, evidence)["margin"])

    def promotes(self, scores: Scores, evidence: Evidence) -> bool:
        """Whether the challenger of these scores would become champion."""
        return judge(scores, self.rules, evidence).promote


def month(
    gate: Gate, pairs: list[Scores], sigma: float, gain: float, nights: int, is_warm: bool, draw: Generator
) -> bool:
    """Whether the champion changes in so many nights, each truly better by `gain`."""
    evidence = gate.measured(draw)
    least = gate.least(evidence)
    champion = 0.0 if is_warm else draw.normal(0, sigma)
    for challenger in draw.normal(0, sigma, nights):
        found = 1 - (1 - gain) * (1 + challenger) / (1 + champion)
        # Below the margin there is no promotion, so the bootstrap need not be drawn: 20 times as fast.
        if found >= least and gate.promotes(improved(pairs[int(draw.integers(len(pairs)))], found), evidence):
            return True
    return False


def real_month(gate: Gate, models: list[Model], draw: Generator) -> bool:
    """Whether any of 30 real models of the recipe takes the place of another."""
    evidence = gate.measured(draw)
    least = gate.least(evidence)
    champion, *nights = draw.integers(len(models), size=NIGHTS + 1).tolist()
    return any(
        challenger != champion and promoted(gate, evidence, least, models[challenger], models[champion])
        for challenger in dict.fromkeys(nights)
    )


def promoted(gate: Gate, evidence: Evidence, least: float, challenger: Model, champion: Model) -> bool:
    """The verdict on two real models."""
    scores = paired(challenger, champion)
    return gain_of(scores) >= least and gate.promotes(scores, evidence)


def real_pairs(models: list[Model]) -> Iterator[Scores]:
    """All ordered pairs of different models."""
    for a in models:
        yield from (paired(a, b) for b in models if b is not a)


if __name__ == "__main__":
    main()
