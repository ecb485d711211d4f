"""Options of a training's budget."""

from __future__ import annotations

from dataclasses import dataclass

from yanmo.options.fields import Options, flag, opt


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(Options, group="budget"):
    """What training may cost a night or a month (docs/months.md)."""

    budget_night: float = opt(
        0.0,
        "most that the channel's trainings may cost a night, noon to noon in --timezone; 0 for no limit",
        kind="environment",
        trial=0.0,
        variable="YANMO_BUDGET_NIGHT",
    )
    budget_month: float = opt(
        0.0, "the same for a month", kind="environment", trial=0.0, variable="YANMO_BUDGET_MONTH"
    )
    gpu_hour_price: float = opt(
        0.0, "price of a GPU for an hour", kind="environment", variable="YANMO_GPU_HOUR_PRICE"
    )
    cpu_hour_price: float = opt(
        0.0,
        "price of a core for an hour; all that this process may use count",
        kind="environment",
        variable="YANMO_CPU_HOUR_PRICE",
    )
    currency: str = opt(
        "",
        "what prices and budgets are in, such as CNY; a label",
        kind="environment",
        variable="YANMO_CURRENCY",
    )

    def contradictions(self) -> list[str]:
        """Options that contradict each other."""
        given = next((name for name in ("budget_night", "budget_month") if getattr(self, name)), "")
        if given and not (self.gpu_hour_price or self.cpu_hour_price):
            return [f"{flag(given)} needs a price: give --gpu-hour-price or --cpu-hour-price"]
        return []
