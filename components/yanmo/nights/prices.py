"""What a GPU-hour, a CPU-hour and a kWh cost a team, and what that makes of a night."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from yanmo.nights.night import finite, plain

MOST_OF_A_CURRENCY = 8


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in one currency; 0 where there is none."""

    gpu_hour: float = 0.0
    """Of a GPU that is held for an hour."""
    cpu_hour: float = 0.0
    """Of a core that computes for an hour."""
    kwh: float = 0.0
    currency: str = ""

    @property
    def is_known(self) -> bool:
        """Whether anything has a price."""
        return bool(self.gpu_hour or self.cpu_hour or self.kwh)

    def of(self, cost: Mapping[str, float | None]) -> float | None:
        """The money that a cost (by the names in `COSTS`) is; None without prices or known hours."""
        is_unknown = finite(cost.get("seconds")) is None or (
            self.gpu_hour > 0 and cost.get("gpu_hours", 0.0) is None
        )
        if not self.is_known or is_unknown:
            return None
        amounts = {name: finite(cost.get(name)) or 0.0 for name in ("gpu_hours", "cpu_seconds", "kwh")}
        hours = amounts["gpu_hours"] * self.gpu_hour + amounts["cpu_seconds"] / 3600 * self.cpu_hour
        return hours + amounts["kwh"] * self.kwh

    def to_dict(self) -> dict[str, Any]:
        """What is not 0 or empty."""
        return {name: value for name, value in vars(self).items() if value}

    @classmethod
    def read(cls, values: Any) -> Prices:
        """From what JSON holds; what cannot be a price is none."""
        values = values if isinstance(values, Mapping) else {}
        found = {f.name: finite(values.get(f.name)) or 0.0 for f in fields(cls) if f.name != "currency"}
        currency = plain(str(values.get("currency", "")), MOST_OF_A_CURRENCY)
        return cls(**{name: max(value, 0.0) for name, value in found.items()}, currency=currency)
