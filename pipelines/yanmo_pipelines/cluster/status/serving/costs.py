"""Money on /metrics: what nights and champions cost, and what is left of a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo

from yanmo.common.evening import evening_of
from yanmo.nights.paid import Paid
from yanmo.nights.prices import Prices
from yanmo.nights.settings import prices_of
from yanmo.options.time_zone import zone_of
from yanmo.stage.measured import Measured
from yanmo.store.channel.spending import Nights, held_in
from yanmo_pipelines.cluster.status.money import champion_paid
from yanmo_pipelines.cluster.status.serving.look import Channel
from yanmo_pipelines.cluster.status.serving.options import ServeOptions


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """What hours cost, and what trainings of a channel may cost; 0 for no limit."""

    prices: Prices = field(default_factory=Prices)
    night: float = 0.0
    month: float = 0.0
    zone: tzinfo

    @classmethod
    def of(cls, options: ServeOptions) -> Budgets:
        """As the options say."""
        return cls(
            prices=prices_of(options),
            night=options.budget_night,
            month=options.budget_month,
            zone=zone_of(options.timezone),
        )

    def spent(self, hours: Nights, now: float) -> dict[str, float]:
        """What was held in the night and in the month of `now`, Unix seconds, as `yanmo train` counts it."""
        held = held_in(hours, evening_of(now, self.zone).isoformat())
        prices = self.prices
        return {period: each.price(prices.gpu_hour, prices.cpu_hour) for period, each in held.items()}


def show_costs(measured: Measured, channels: Mapping[str, Channel], budgets: Budgets) -> None:
    """What the newest look saw that nights, months and champions cost."""
    costs: dict[str, dict[tuple[str, str], float]] = {"night_cost": {}, "month_cost": {}, "champion_cost": {}}
    for name, channel in channels.items():
        champion = champion_paid(channel.champion_total, budgets.prices)
        found: dict[str, tuple[Paid, ...]] = {
            "night_cost": channel.spent.night,
            "month_cost": channel.spent.month,
            "champion_cost": (champion,) if champion else (),
        }
        for metric, amounts in found.items():
            costs[metric] |= {(name, paid.currency): paid.amount for paid in amounts}
    for metric, values in costs.items():
        measured.show_only(metric, values, room="channel")


def show_budgets(measured: Measured, channels: Mapping[str, Channel], budgets: Budgets, now: float) -> None:
    """Budgets and what was spent of them; true also while the store does not answer, as of the last look."""
    currency = budgets.prices.currency
    limits = {period: most for period, most in (("night", budgets.night), ("month", budgets.month)) if most}
    most = {(name, period, currency): limit for name in channels for period, limit in limits.items()}
    spent = {
        (name, period, currency): amount
        for name, channel in channels.items()
        if channel.hours is not None
        for period, amount in budgets.spent(channel.hours, now).items()
        if period in limits
    }
    measured.show_only("budget", most, room="channel")
    measured.show_only("budget_spent", spent, room="channel")
