"""How often promote's gate is wrong: simulated on the per-document bits of real models.

    python benchmarks/gate.py --store runs/demo EVALUATION EVALUATION ...

EVALUATION: `evaluate/<key>` or a reference file, at least two, of models of one recipe with other seeds (five
for the figures of docs/gate.md, which has the commands that train them). Everything goes through
yanmo.promote.gate.judge with the stage's default rules about bits; `limits` are left out, as nothing here is
known of samples, and a limit on what was not measured is not kept.

    random signs    a pair of real models; in each document they are exchanged or not, by a coin. No model is
                    better, and documents differ as much as real ones do.
    seeds           an ordered pair of models, on documents drawn again with replacement: two trainings of
                    one recipe, of which one is a little better by luck.
    nights          30 challengers of one recipe in a row, each against the champion of the time: the share
                    of such months in which the crown changes hands, and how often it does. A night's model
                    is one of the real ones; its evaluation set is drawn again each night.
    gain of X %     random signs, after which the challenger needs X % fewer bits everywhere.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from yanmo.common.inputs import parse_reference
from yanmo.common.store.objects import ObjectStore, open_store
from yanmo.common.store.output import open_reference
from yanmo.promote.config import PromoteConfig
from yanmo.promote.evaluation import Evaluation, open_evaluation, paired_scores
from yanmo.promote.gate import judge
from yanmo.promote.spread import CHALLENGER, CHAMPION, CHARACTERS, Floats
from yanmo.promote.work import rules_of

Scores = dict[str, Floats]
Generator = np.random.Generator
NIGHTS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", default="runs/demo")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--months", type=int, default=200, help="months of 30 nights")
    parser.add_argument("--min-gain", type=float, default=PromoteConfig.min_gain)
    parser.add_argument("evaluations", nargs="+")
    options = parser.parse_args()
    store = open_store(options.store)
    models = [_opened(store, text) for text in options.evaluations]
    if len(models) < 2:
        parser.error("expected two evaluations or more")
    gate = Gate(options.min_gain)
    print(f"bits per character, mean over genres: {', '.join(f'{m.mean:.3f}' for m in models)}")
    pairs = [paired_scores(a, b) for a, b in itertools.permutations(models, 2)]
    gains = [gate.gain(pair) for pair in pairs]
    print(f"gains between them: up to {100 * max(gains):.2f} %; {len(pairs)} ordered pairs\n")
    print(f"{'simulation':<28}{'promoted':>10}{'of':>7}")
    for name, made in simulations(pairs).items():
        found = sum(gate.promotes(made(np.random.default_rng([i, 0]))) for i in range(options.draws))
        print(f"{name:<28}{100 * found / options.draws:>8.1f} %{options.draws:>7}", flush=True)
    changes = [months_of(gate, models, np.random.default_rng([i, 1])) for i in range(options.months)]
    changed = np.mean([c > 0 for c in changes])
    print(f"{f'{NIGHTS} nights, any change':<28}{100 * changed:>8.1f} %{options.months:>7}")
    print(f"{'changes per night':<28}{100 * np.mean(changes) / NIGHTS:>8.2f} %{NIGHTS * options.months:>7}")


def _opened(store: ObjectStore, given: str) -> Evaluation:
    reference = parse_reference(store, given, "evaluation")
    if reference is None:
        raise SystemExit(f"{given}: no evaluation")
    return open_evaluation(open_reference(store, reference))


class Gate:
    """promote's rules about bits, with their defaults."""

    def __init__(self, min_gain: float) -> None:
        # A tenth of the stage's draws of documents: enough for the ends of an interval, over 1,000 verdicts.
        rules = rules_of(PromoteConfig(min_gain=min_gain))
        self._rules = replace(rules, draws=500, limits=(), must_measure=())

    def promotes(self, scores: Scores) -> bool:
        """Whether the challenger of these scores would be crowned."""
        # Without the margin there is no promotion, so the bootstrap need not be drawn: 20 times as fast.
        return self.gain(scores) >= self._rules.min_gain and judge(scores, self._rules).promote

    def gain(self, scores: Scores) -> float:
        """The challenger's gain as a share of the champion's bits, mean over genres."""
        sums = [values.sum(axis=0) for values in scores.values()]
        mine, theirs = (np.mean([s[who] / s[CHARACTERS] for s in sums]) for who in (CHALLENGER, CHAMPION))
        return float((theirs - mine) / theirs)


def simulations(pairs: Sequence[Scores]) -> dict[str, Callable[[Generator], Scores]]:
    """Name -> what makes the scores of one draw."""

    def chosen(draw: Generator) -> Scores:
        return pairs[int(draw.integers(len(pairs)))]

    return {
        "random signs": lambda draw: random_signs(chosen(draw), draw),
        "seeds": lambda draw: other_documents(chosen(draw), draw),
        **{
            f"gain of {percent:g} %": lambda draw, share=percent / 100: improved(
                random_signs(chosen(draw), draw), share
            )
            for percent in (0.3, 0.5, 1.0)
        },
    }


def random_signs(scores: Scores, draw: Generator) -> Scores:
    """Challenger and champion exchanged in documents chosen by a coin."""
    result = {}
    for genre, values in scores.items():
        exchanged = values.copy()
        turned = draw.integers(2, size=len(values)) == 1
        exchanged[np.ix_(turned, [CHALLENGER, CHAMPION])] = values[np.ix_(turned, [CHAMPION, CHALLENGER])]
        result[genre] = exchanged
    return result


def other_documents(scores: Scores, draw: Generator) -> Scores:
    """As many documents of each genre, drawn with replacement."""
    return {genre: values[draw.integers(len(values), size=len(values))] for genre, values in scores.items()}


def improved(scores: Scores, share: float) -> Scores:
    """The challenger needs this share of its bits less."""
    result = {genre: values.copy() for genre, values in scores.items()}
    for values in result.values():
        values[:, CHALLENGER] *= 1 - share
    return result


def months_of(gate: Gate, models: Sequence[Evaluation], draw: Generator) -> int:
    """How often the crown changes hands in 30 nights of one recipe."""
    champion, changes = int(draw.integers(len(models))), 0
    for challenger in draw.integers(len(models), size=NIGHTS).tolist():
        if challenger == champion:
            continue
        scores = other_documents(_pair(models, challenger, champion), draw)
        if gate.promotes(scores):
            champion, changes = challenger, changes + 1
    return changes


_PAIRS: dict[tuple[int, int], Scores] = {}


def _pair(models: Sequence[Evaluation], challenger: int, champion: int) -> Scores:
    key = (challenger, champion)
    if key not in _PAIRS:
        _PAIRS[key] = paired_scores(models[challenger], models[champion])
    return _PAIRS[key]


if __name__ == "__main__":
    main()
