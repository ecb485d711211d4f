"""Options of a command that says what things cost."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import Options, opt


@dataclass(frozen=True, kw_only=True)
class PriceOptions(Options, group="prices"):
    """What hours and energy cost; by default what YANMO_GPU_HOUR_PRICE and its kin, or the Secret, say."""

    gpu_hour_price: float = opt(0.0, "price of a GPU-hour", variable="YANMO_GPU_HOUR_PRICE")
    cpu_hour_price: float = opt(
        0.0, "price of a CPU-hour: a core for an hour", variable="YANMO_CPU_HOUR_PRICE"
    )
    kwh_price: float = opt(0.0, "price of a kWh", variable="YANMO_KWH_PRICE")
    currency: str = opt("", "what the prices are in, such as CNY; a label", variable="YANMO_CURRENCY")
