"""What a GPU-hour and a kWh cost, and what that makes of a training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from yanmo.options.fields import Options, opt


@dataclass(frozen=True, kw_only=True)
class PriceOptions(Options, group="prices"):
    """What hours and energy cost."""

    gpu_hour_price: float = opt(0.0, "price of a GPU-hour")
    kwh_price: float = opt(0.0, "price of a kWh")
    currency: str = opt("", "what the prices are in, such as CNY; a label")


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in one currency; 0 where there is none."""

    gpu_hour: float = 0.0
    """Of a GPU that is held for an hour."""
    kwh: float = 0.0
    currency: str = ""

    def of(self, cost: Mapping[str, float | None]) -> float | None:
        """The money that a cost (`gpu_hours`, `kwh`) is; None without prices."""
        if not (self.gpu_hour or self.kwh):
            return None
        return (cost.get("gpu_hours") or 0.0) * self.gpu_hour + (cost.get("kwh") or 0.0) * self.kwh
