"""How much of a gain the seed alone may make, and the margin that keeps this out for a month.

Two trainings of one recipe that differ by their seed differ in their bits: the mean over genres scatters with
a standard deviation of sigma, a share of the bits. The bootstrap over documents knows nothing of it, as it
does not train again. Sigma is measured for the recipe at hand by twins, short trainings with other seeds; of
so few of them the estimate s is rough, for which the margin pays.

A night promotes where its gain is at least the margin q x s, a share of the champion's bits, or where the
mean gain of the last three nights (`RUN`) of this recipe against this champion is at least sqrt(2/3) = 0.816
of the margin (nights.py). q is such that in a month without progress the champion changes with a chance of at
most `month_error`:

    cold    every night trains from nothing: champion c and challengers x_1 ... x_n ~ N(0, sigma); c - x_i is
            a gain by luck. The champion's own luck counts, good or bad, and the mean of three nights does not
            lessen it: sd of the gain sqrt(2) sigma, of the mean of three sqrt(4/3) sigma.
    warm    the night goes on from the champion: only the challengers scatter. That of the mean is sigma
            / sqrt(3) where the nights are independent; they are not where each has the same seed (models of
            one seed on 70 % and 100 % of the text: correlation of their bits 0.84, 6 pairs,
            benchmarks/NOTES.md), so that the mean asks for sqrt(2/3) here too. With that a month's error is
            at most 5.5 % whatever the correlation from night to night; with sqrt(1/3) it would be up to 20 %.

All tests of a month count as independent given c and s: windows of three overlap, which only makes the true
error smaller. s^2 is sigma^2 chi^2 / df with df = twins - 1 (an assumed sigma has no error of its own: df is
infinite). q by twins, for 30 nights and 5 %: 4 twins 7.34, 8 5.10, 12 4.65, 16 4.46, sigma known 3.98; warm:
12 3.62, known 2.93.

Not taken: a second training of each close call (a whole night each; the next night is one for nothing); the
scatter of past nights as a measure of sigma (recipes and text change under it, and it comes late).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from yanmo.formats.seed_noise import PART, SeedNoise
from yanmo.store.output import Output

Floats = npt.NDArray[np.float64]
RUN = 3
"""Nights whose mean counts."""
MEAN_SHARE = math.sqrt(2 / 3)
"""Share of the margin that is asked of that mean."""
_LIKELY = 1.2816
"""Standard deviations below which nine of ten normal draws lie."""
_MOST = 1e5
"""More than q of two twins, 10,000 nights and an error of 0.01 %."""
_REACH = 8.0
"""Standard deviations to which the integrals go."""


@dataclass(frozen=True)
class Noise:
    """The spread that a recipe's seed makes."""

    sd: float
    """Standard deviation of the mean over genres between seeds, as a share of the bits."""
    df: float
    """Degrees of freedom behind it; infinite where it is assumed."""
    is_warm: bool = False
    """Whether the challenger went on from the champion itself."""
    twins: int = 0
    """Trainings that it was measured by; 0 where it is assumed."""
    source: str = ""
    """Where the twins are found."""

    @property
    def is_measured(self) -> bool:
        """Whether it was measured, not assumed."""
        return self.twins > 0


def margin(noise: Noise, month_error: float, nights: int) -> float:
    """The gain, as a share of the champion's bits, that luck reaches in `month_error` of the months."""
    return quantile(month_error, nights, noise.df, noise.is_warm) * noise.sd


def told_apart(noise: Noise, margin_of_mean: float) -> float:
    """The least true gain, as a share, that three nights tell from luck in nine of ten cases at least.

    By the mean of three nights alone; the single nights' own chances come on top. The nights are taken to be
    independent, and sigma to be s.
    """
    return margin_of_mean + _LIKELY * math.sqrt((0 if noise.is_warm else 1) + 1 / RUN) * noise.sd


def noise_of(model: Output, champion: Output | None) -> Noise | None:
    """The spread that the seed of a challenger's recipe makes; None where its training measured no two
    twins."""
    if PART not in model.manifest.references:
        return None
    part = model.part(PART)
    found = SeedNoise.of(part)
    sd, df = found.spread
    if not df or not sd > 0:
        return None
    return Noise(sd=sd, df=df, is_warm=goes_on(model, champion), twins=len(found.twins), source=str(part))


def goes_on(model: Output, champion: Output | None) -> bool:
    """Return whether the training of a model began from the champion itself."""
    began_from = model.manifest.inputs.get("model") or {}
    return champion is not None and bool(began_from.get("content_digest") == champion.content_digest)


@functools.lru_cache(maxsize=64)
def quantile(month_error: float, nights: int, df: float, is_warm: bool = False) -> float:
    """q: how many measured standard deviations a challenger has to gain in one night."""
    low, high = 0.0, _MOST
    for _ in range(40):
        middle = (low + high) / 2
        if chance_of_change(middle, nights, df, is_warm) > month_error:
            low = middle
        else:
            high = middle
    return high


def chance_of_change(q: float, nights: int, df: float, is_warm: bool = False) -> float:
    """The chance, or a little more, that in so many nights without progress the champion changes."""
    s, s_weight = _spread_grid(df)
    if is_warm:
        return float(1 - (s_weight * _no_change(q * s, np.zeros(1), nights)).sum())
    c = np.linspace(-_REACH, _REACH, 161)
    c_weight = np.exp(-(c**2) / 2)
    stays = _no_change(q * s[:, None], c[None, :], nights)
    return float(1 - (s_weight[:, None] * (c_weight / c_weight.sum())[None, :] * stays).sum())


def _no_change(asked: Floats, champion: Floats, nights: int) -> Floats:
    """The chance that no night and no mean of `RUN` nights gains what is asked, given the champion's luck."""
    alone = _stays(asked - champion, nights)
    return alone * _stays((MEAN_SHARE * asked - champion) * math.sqrt(RUN), max(0, nights - RUN + 1))


def _stays(gap: Floats, nights: int) -> Floats:
    """The chance that none of `nights` standard normal draws is above `gap`."""
    grid, table = _normal_table()
    return np.asarray(np.interp(gap, grid, table)) ** nights


@functools.lru_cache(maxsize=1)
def _normal_table() -> tuple[Floats, Floats]:
    grid = np.linspace(-_REACH, _REACH, 16_001)
    return grid, np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in grid])


def _spread_grid(df: float) -> tuple[Floats, Floats]:
    """Values of s / sigma for s^2 ~ sigma^2 chi^2(df) / df, and their weights."""
    if math.isinf(df):
        return np.ones(1), np.ones(1)
    far = _REACH / math.sqrt(2 * df)
    root = np.linspace(max(1e-6, 1 - far) ** (1 / 3), (1 + far) ** (1 / 3), 601)
    s = root**3  # finer near 0, where two twins that happen to agree make all the error
    log_density = (df - 1) * np.log(s) - df * s**2 / 2 + 2 * np.log(root)
    weight = np.exp(log_density - log_density.max())
    return s, weight / weight.sum()
