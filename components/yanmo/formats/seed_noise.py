"""How much results vary with the seed, measured by `train` and read by `promote`: the part `seed_noise`.

    noise.json    length of the twins as a share of the steps, and of each twin its seed, text (digest of its
                  token cache), start (digest of its starting model) and bits per character of the
                  validation split, mean over genres

Twins are short trainings by one recipe that differ in the seed. Those on the same text from the same start
are compared with each other; text and champion change from night to night, so there may be several such sets,
whose variances are pooled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from yanmo.store.output import Output
from yanmo.store.record import Record

PART = "seed_noise"
"""Name of this part of a model, of its stage in the store, and of its pointer."""
FILE = "noise.json"


@dataclass(frozen=True, kw_only=True)
class Twin:
    """One short training."""

    seed: int
    text: str
    """Content digest of its token cache."""
    bits_per_character: float
    """Bits per character of the validation split, mean over genres."""
    start: str = ""
    """Content digest of the model that it began with; "" for none."""


@dataclass(frozen=True, kw_only=True)
class SeedNoise:
    """The twins of a recipe."""

    share: float
    """Length of a twin, as a share of the steps."""
    twins: tuple[Twin, ...]

    @property
    def spread(self) -> tuple[float, int]:
        """Relative standard deviation over seeds, and its degrees of freedom: see `spread_of`."""
        groups: dict[tuple[str, str], list[float]] = {}
        for twin in self.twins:
            groups.setdefault((twin.text, twin.start), []).append(twin.bits_per_character)
        return spread_of(list(groups.values()))

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"a share of the steps of {self.share}")

    @classmethod
    def of(cls, output: Output) -> SeedNoise:
        """Read the part.

        Raises:
            DataError: it is of another version.
        """
        return NOISE.parse(output.path(FILE).read_bytes(), f"{output}: {FILE}")


NOISE = Record("yanmo.seed_noise/2", SeedNoise, "run `yanmo train` with --twins and --force again")


def spread_of(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Pooled standard deviation over seeds, as a share of the mean, and its degrees of freedom.

    Args:
        groups: bits per character of twins; those of one group differ only in their seed.

    Returns:
        (nan, 0) if no group has two twins.
    """
    squares, df = 0.0, 0
    for group in groups:
        values = np.asarray(group, np.float64)
        if len(values) > 1:
            squares += float(((values / values.mean() - 1) ** 2).sum())
            df += len(values) - 1
    return (math.sqrt(squares / df), df) if df else (math.nan, 0)
