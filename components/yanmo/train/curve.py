"""The validation curve of a training: a few validations on the way, for people to look at.

Nothing rests on them: no checkpoint is kept for one, no learning rate follows, and the model is the same
without them (--valid-every is for that). So they may be made on less text, and together they take 1 % of the
training's operations at most, a forward pass being a third of a step. A training too short for two points has
no curve.
"""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.formats.token_cache import TokenCache
from yanmo.train.config import TrainConfig
from yanmo.train.validate import Validation

_SHARE = 0.01
_PASSES = 3
"""What a step costs, in forward passes: one forward, two backward."""
_LEAST_CHARACTERS = 250


@dataclass(frozen=True)
class Curve:
    """Which steps are measured, and on what."""

    validation: Validation
    steps: frozenset[int] = frozenset()

    @classmethod
    def of(cls, options: TrainConfig, cache: TokenCache) -> Curve:
        """The curve that --valid-points asks for, within its budget; no steps where there is none."""
        points = min(options.valid_points, options.steps)
        if options.valid_every or not options.valid_characters or not points:
            return cls(Validation.choose(cache, 0))
        budget = _SHARE * _PASSES * options.steps * options.batch_rows * options.context
        characters = options.valid_characters
        validation = Validation.choose(cache, characters)
        while validation.num_tokens * points > budget and characters // 2 >= _LEAST_CHARACTERS:
            characters //= 2
            validation = Validation.choose(cache, characters)
        if validation.documents:
            points = min(points, int(budget / validation.num_tokens))
        if points < 2 or not validation.documents:
            return cls(Validation.choose(cache, 0))
        return cls(validation, frozenset(round(options.steps * i / points) for i in range(1, points + 1)))
