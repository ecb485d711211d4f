"""Reads `--quotas` and computes the target of each class, in units. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from yanmo.common.errors import UsageError
from yanmo.options.values import MOST_EXACT, brief, number_in

OTHERS = "*"
_ENTRY = re.compile(r"([^=:,\s]+)\s*[=:]\s*(?:([0-9]+)|([0-9]+(?:\.[0-9]+)?)(%|w))\Z")
_EXPONENT = re.compile(r"size\s*\^\s*([0-9]+(?:\.[0-9]+)?)\Z")
_FORMS: dict[str | None, Literal["amount", "percent", "weight"]] = {
    None: "amount",
    "%": "percent",
    "w": "weight",
}


_EXAMPLES = "shi=1900000,ci=200%,*=100% or shi=3w,*=1w or size^0.7"


@dataclass(frozen=True)
class Quota:
    """How much of a class train should hold."""

    value: float
    form: Literal["amount", "percent", "weight"]

    def units(self, available: int) -> int:
        """Return an amount or percentage in units, for a class that has `available` of them."""
        return round(available * self.value / 100) if self.form == "percent" else int(self.value)

    def __str__(self) -> str:
        return f"{self.value:.12g}" + {"amount": "", "percent": "%", "weight": "w"}[self.form]


@dataclass(frozen=True)
class QuotaPlan:
    """What `--quotas` says: class (as written) -> quota, or an exponent for all classes."""

    quotas: dict[str, Quota]
    exponent: float | None = None

    @property
    def is_relative(self) -> bool:
        """Return whether quotas are shares of a total (weights, an exponent) and not amounts."""
        return self.exponent is not None or any(q.form == "weight" for q in self.quotas.values())


def parse_plan(text: str) -> QuotaPlan:
    """Read `shi=1900000,ci=200%,*=50%`, `shi=3w,*=1w` or `size^0.7`.

    Raises:
        UsageError: an entry that is no quota, a class named twice, weights together with amounts.
    """
    found = _EXPONENT.match(text.strip())
    if found:
        return QuotaPlan({}, _exponent(float(found[1])))
    quotas: dict[str, Quota] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, quota = _entry(entry)
        if name in quotas:
            raise UsageError(f"--quotas: {name} is named twice: keep one")
        quotas[name] = quota
    if len({quota.form == "weight" for quota in quotas.values()}) > 1:
        raise UsageError(
            "--quotas: weights (3w) do not mix with amounts or percentages; give every class a "
            "weight, or none"
        )
    if quotas and not any(q.value for q in quotas.values()) and next(iter(quotas.values())).form == "weight":
        raise UsageError("--quotas: all weights are 0, so nothing would be left; give a class more")
    return QuotaPlan(quotas)


def _entry(entry: str) -> tuple[str, Quota]:
    found = _ENTRY.match(entry)
    if entry.replace(" ", "").startswith("size^"):
        raise UsageError(
            "--quotas: size^X (0 to 1) stands alone, as it decides over all classes; leave the others out"
        )
    if not found:
        raise UsageError(
            f"--quotas: expected class=amount, class=percent%, class=weight+w or size^X, found "
            f"{brief(entry)} (for instance {_EXAMPLES})"
        )
    name, amount, number, suffix = found.groups()
    value = number_in(amount or number)
    if value is None or value > MOST_EXACT:
        raise UsageError(f"--quotas: {brief(entry)}: expected a number from 0 to {MOST_EXACT}")
    return name, Quota(value, _FORMS[suffix])


def _exponent(exponent: float) -> float:
    if not 0 <= exponent <= 1:
        raise UsageError(f"--quotas: size^{exponent:g}: expected 0 (equal classes) to 1 (as they are)")
    return exponent


@dataclass(frozen=True)
class Target:
    """What a class should hold."""

    quota: str
    """The quota as written; empty if the class has none."""
    wanted: int
    """Units that the quota asks for."""
    units: int
    """Units to take: as many of them as --max-repeats allows."""


def targets(plan: QuotaPlan, available: Mapping[str, int], *, max_repeats: int) -> dict[str, Target]:
    """Return the target of each class; weights and an exponent drop no document.

    Args:
        plan: has no class that is not in `available`; with weights, all of these.
        available: units of each class, above 0.
        max_repeats: no class gets more than this many times what it has.
    """
    if plan.exponent is not None:
        weights = {name: float(units) ** plan.exponent for name, units in available.items()}
        return _relative(weights, f"size^{plan.exponent:g}", available, max_repeats)
    if plan.is_relative:
        named = {name: plan.quotas[name].value for name in available}
        return _relative(named, "", available, max_repeats)
    found = {}
    for name, units in available.items():
        quota = plan.quotas.get(name)
        wanted = units if quota is None else quota.units(units)
        shown = "" if quota is None else str(quota)
        found[name] = Target(shown, wanted, min(wanted, max_repeats * units))
    return found


def _relative(
    weights: Mapping[str, float], shown: str, available: Mapping[str, int], max_repeats: int
) -> dict[str, Target]:
    # The class with the most units for its weight is kept whole, the others are repeated.
    scale = max(available[name] / weight for name, weight in weights.items() if weight)
    wanted = {name: round(scale * weight) for name, weight in weights.items()}
    return {
        name: Target(
            shown or f"{weights[name]:g}w", wanted[name], min(wanted[name], max_repeats * available[name])
        )
        for name in available
    }
